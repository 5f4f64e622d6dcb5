"""An instance over HTTP: queries that are routed to the instance that has the answer, health, metrics, tasks, topology.

| module | what it is |
| --- | --- |
| ``instance`` | what is asked of a running application |
| ``text`` | keys out of URLs, rows as JSON |
| ``answers`` | what each path answers, as values |
| ``upgrade`` | how far an upgrade is, by its group and by this instance |
| ``forwarding`` | asking the other instances |
| ``server`` | paths, status codes, the socket and its thread |
| ``pages`` | answers of many rows, made piece by piece: nobody holds all of them at once |

It needs ``pip install 'streamsrt[http]'`` and is on where ``http.listen`` says at which address. There is no encryption and
no authentication: it is for the network of the application, or for a proxy in front of it.
"""
