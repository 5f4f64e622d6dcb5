"""Values of Avro as bytes, by code that is generated for each schema or in C, for serdes with a schema registry.

1. Both are for what values usually are. Where they find anything else, fastavro reads or writes the same value again:
   results and bytes are those of fastavro, and so are errors, which serdes say in one sentence.
2. Schemas are as ``fastavro.parse_schema`` returns them.

- ``values``      functions that read and write values of a schema, in C, by generated code or by fastavro
- ``kernels``     what there is in C
- ``steps``       how the values of a schema are read and written
- ``schemas``     what schemas are made of
- ``item_counts`` a bound for arrays whose damaged counts nobody else notices
- ``reading``     the code that reads
- ``unreadable``  why a value can't be read, in one sentence
- ``writing``     the code that writes
- ``source_code`` how that code is put together and compiled
"""
