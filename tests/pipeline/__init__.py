import sys

# Spark leads the path of its daemons with an archive of its sources, and each would compile what it imports from there.
sys.path[:] = [path for path in sys.path if not path.endswith("pyspark.zip")]
