"""The Spark session and its JVM: how they start, run tasks and stop."""
