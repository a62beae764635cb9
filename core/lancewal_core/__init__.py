"""The protocol core of lancewal: no Kafka client and no Spark in here."""
