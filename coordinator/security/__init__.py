"""Who a client is: SASL mechanisms as pure machines, and the credentials that they check. No input or output here."""
