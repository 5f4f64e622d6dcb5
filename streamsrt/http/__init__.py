"""An instance over HTTP: queries that are routed to the instance that has the answer, health, metrics, tasks, topology.

| module | what it is |
| --- | --- |
| ``instance`` | what HTTP needs of a running application |
| ``text`` | keys from URLs, rows as JSON |
| ``key_path`` | paths that end in a key |
| ``answers`` | the response of each path, as values |
| ``upgrade`` | the progress of an upgrade, from the group and from this instance |
| ``forwarding`` | forwards requests to the other instances |
| ``starting`` | starts HTTP beside an instance |
| ``missing_module`` | why HTTP can't start if a module is not found |
| ``server`` | paths, status codes, the socket and its thread |
| ``names`` | by which names an instance is asked: by others, and where it listens on loopback |
| ``pages`` | responses with many rows, sent in pieces: nobody holds all of them at once |

It needs ``pip install 'streamsrt[http]'``; ``http.listen`` enables it and sets its address. There is no encryption and
no authentication: it is for the network of the application, or for a proxy in front of it.
"""
