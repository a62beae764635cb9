"""A real schema registry on 127.0.0.1, for tests: Apicurio, fetched once, its data in memory."""

from lancewal_demo.stack.registry.registry_server import RegistryServer

__all__ = ["RegistryServer"]
