"""Who a client is: SASL mechanisms as pure machines, and the credentials that they check. No input or output here.

- ``acls``       access control lists and the decision that follows from them, as Kafka's ``StandardAuthorizer`` makes
                 it
- ``plain``      SASL PLAIN: name and password as they are (RFC 4616), against users given in Kafka's JAAS form
- ``principal``  who a client with a certificate is: its distinguished name, as ``ssl.principal.mapping.rules`` turns
                 it (KIP-371)
- ``scram``      SCRAM-SHA-256 and SCRAM-SHA-512, the server's side (RFC 5802), as Kafka speaks it
"""
