"""``lancewal merge --runner spark`` as a script for ``spark-submit``; takes the options of that command.

It lies in a folder of its own, because Python looks for modules beside a script first.
"""

import sys

from lancewal_core.cli import program as cli

if __name__ == "__main__":
    sys.exit(cli.run(["merge", "--runner", "spark", *sys.argv[1:]]))
