"""Values of Avro as bytes, by code that is generated for each schema or in C, for serdes with a schema registry.

1. Both are for what values usually are. Where they find anything else, fastavro reads or writes the same value again:
   results, bytes and errors are those of fastavro.
2. Schemas are as ``fastavro.parse_schema`` returns them.

- ``values``      functions that read and write values of a schema, in C, by generated code or by fastavro
- ``kernels``     what there is in C
- ``steps``       how the values of a schema are read and written
- ``schemas``     what schemas are made of
- ``item_counts`` a bound for arrays whose damaged counts nobody else notices
- ``reading``     the code that reads
- ``writing``     the code that writes
- ``source_code`` how that code is put together and compiled
"""
