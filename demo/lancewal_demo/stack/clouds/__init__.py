"""Local servers for the stores of other clouds: Azure's blob service (Azurite) and Google Cloud Storage (a front over
fake-gcs-server).

Only tests use them.  They are fetched and built once, like the S3 server.
"""

from lancewal_demo.stack.clouds.azure_server import AzureServer
from lancewal_demo.stack.clouds.gcs_server import GcsServer

__all__ = ["AzureServer", "GcsServer"]
