# Replication: master and slave of the HA protocol.
