/* The hottest loops over records, in C: an optional extra (see streamsrt/wire/kernels.py).

   1. Nothing here has a behaviour of its own. Each function does what the Python code beside its caller does, for the inputs that
      are common, and returns None for all others: that code then takes them, and reports what is wrong with them.
   2. Bytes come from the network. No byte is read before its position was compared with the end of the buffer.
   3. No reference is borrowed across code that may run Python: keys and values are bytes, lists are exactly lists, and
      nothing else is called, but by MessageReader, which borrows from its caller alone. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef const unsigned char *bytes_at;

#define NUMBER_BYTES_MAX 5
#define LONG_NUMBER_BYTES_MAX 9
#define TIME_MAX ((int64_t)1 << 62)

/* ------------------------------------------------------------------------------------------------- numbers */

/* A number of up to five bytes; -1 where it does not end there or in time, or is not below 2**31. */
static inline int read_int(bytes_at *at, bytes_at end, int32_t *result)
{
    bytes_at p = *at;
    if (p < end && *p < 0x80) {
        *result = (int32_t)(*p >> 1) ^ -(int32_t)(*p & 1);
        *at = p + 1;
        return 0;
    }
    uint64_t value = 0;
    for (int shift = 0; shift < 7 * NUMBER_BYTES_MAX; shift += 7) {
        if (p >= end)
            return -1;
        unsigned char byte = *p++;
        value |= (uint64_t)(byte & 0x7F) << shift;
        if (byte < 0x80) {
            if (value > UINT32_MAX)
                return -1;
            *result = (int32_t)((uint32_t)value >> 1) ^ -(int32_t)(value & 1);
            *at = p;
            return 0;
        }
    }
    return -1;
}

/* A number of up to nine bytes. */
static inline int read_long(bytes_at *at, bytes_at end, int64_t *result)
{
    bytes_at p = *at;
    uint64_t value = 0;
    for (int shift = 0; shift < 7 * LONG_NUMBER_BYTES_MAX; shift += 7) {
        if (p >= end)
            return -1;
        unsigned char byte = *p++;
        value |= (uint64_t)(byte & 0x7F) << shift;
        if (byte < 0x80) {
            *result = (int64_t)(value >> 1) ^ -(int64_t)(value & 1);
            *at = p;
            return 0;
        }
    }
    return -1;
}

static inline uint64_t zigzag(int64_t value)
{
    return ((uint64_t)value << 1) ^ (uint64_t)(value >> 63);
}

static inline int size_of(uint64_t written)
{
    int size = 1;
    while (written >= 0x80) {
        written >>= 7;
        size++;
    }
    return size;
}

static inline unsigned char *put(unsigned char *at, uint64_t written)
{
    while (written >= 0x80) {
        *at++ = (unsigned char)(written | 0x80);
        written >>= 7;
    }
    *at++ = (unsigned char)written;
    return at;
}

/* ------------------------------------------------------------------------------------------------- records */

/* The bytes of a key or value, which begin with their size; 0 where they are not whole. */
static inline int read_bytes(bytes_at *at, bytes_at end, bytes_at *start, int32_t *size)
{
    if (read_int(at, end, size) < 0 || *size < -1)
        return 0;
    *start = *at;
    if (*size > 0) {
        if (*size > end - *at)
            return 0;
        *at += *size;
    }
    return 1;
}

static inline PyObject *as_object(bytes_at start, int32_t size)
{
    return size < 0 ? Py_NewRef(Py_None) : PyBytes_FromStringAndSize((const char *)start, size);
}

/* What is known of records when they were read. `keys`, `values`: where the size of each is, from the start of the buffer. */
typedef struct {
    int64_t *times;
    uint32_t *keys, *values;
    int64_t low, high;
    int null_keys, null_values;
} Found;

/* Fills what is found; 0 where the records are not as in the first rule. */
static int read_all(bytes_at start, bytes_at end, Py_ssize_t count, int64_t base, Found *found)
{
    bytes_at at = start;
    for (Py_ssize_t index = 0; index < count; index++) {
        int32_t length, offset, key_size, value_size;
        int64_t delta;
        bytes_at key, value;
        if (read_int(&at, end, &length) < 0 || length < 0 || length > end - at)
            return 0;
        bytes_at record_end = at + length;
        if (at >= record_end || *at++ >= 0x80)
            return 0;
        if (read_long(&at, record_end, &delta) < 0 || delta <= -TIME_MAX || delta >= TIME_MAX)
            return 0;
        if (read_int(&at, record_end, &offset) < 0 || offset != index)
            return 0;
        found->keys[index] = (uint32_t)(at - start);
        if (!read_bytes(&at, record_end, &key, &key_size))
            return 0;
        found->values[index] = (uint32_t)(at - start);
        if (!read_bytes(&at, record_end, &value, &value_size))
            return 0;
        if (at + 1 != record_end || *at++ != 0)
            return 0;
        found->null_keys |= key_size < 0;
        found->null_values |= value_size < 0;
        int64_t time = found->times[index] = base + delta;
        if (time < found->low)
            found->low = time;
        if (time > found->high)
            found->high = time;
    }
    return at == end;
}

/* The buffer of an array that has room for so many entries; 0 where it is none, with an error set. `flags`: PyBUF_WRITABLE, or
   PyBUF_SIMPLE where it is only read. */
static int room_for(PyObject *array, int flags, Py_ssize_t count, Py_ssize_t entry_bytes, Py_buffer *room)
{
    if (PyObject_GetBuffer(array, room, flags) < 0)
        return 0;
    if (room->len / entry_bytes >= count)
        return 1;
    PyBuffer_Release(room);
    PyErr_SetString(PyExc_ValueError, "no room for what is found");
    return 0;
}

PyDoc_STRVAR(read_records_doc,
"read_records(records, count, base_timestamp, times, keys, values)\n--\n\n"
"The least and greatest time of `count` records that fill the buffer, and whether there are null keys and null values;\n"
"all times are written into `times`, and the positions of keys and values into `keys` and `values`. None unless the\n"
"records have consecutive offsets and no headers, and are written as a producer does.");

static PyObject *read_records(PyObject *self, PyObject *const *args, Py_ssize_t nargs)
{
    if (nargs != 6) {
        PyErr_SetString(PyExc_TypeError, "read_records takes 6 arguments");
        return NULL;
    }
    Py_ssize_t count = PyLong_AsSsize_t(args[1]);
    long long base = PyLong_AsLongLong(args[2]);
    if (PyErr_Occurred())
        return NULL;
    if (count < 1 || base <= -TIME_MAX || base >= TIME_MAX)
        Py_RETURN_NONE;
    Py_buffer records, times, keys, values;
    PyObject *result = NULL;
    if (PyObject_GetBuffer(args[0], &records, PyBUF_SIMPLE) < 0)
        return NULL;
    if (!room_for(args[3], PyBUF_WRITABLE, count, sizeof(int64_t), &times))
        goto no_times;
    if (!room_for(args[4], PyBUF_WRITABLE, count, sizeof(uint32_t), &keys))
        goto no_keys;
    if (!room_for(args[5], PyBUF_WRITABLE, count, sizeof(uint32_t), &values))
        goto no_values;
    bytes_at start = records.buf;
    Found found = {times.buf, keys.buf, values.buf, INT64_MAX, INT64_MIN, 0, 0};
    if (records.len <= INT32_MAX && read_all(start, start + records.len, count, base, &found))
        result = Py_BuildValue("LLii", (long long)found.low, (long long)found.high, found.null_keys, found.null_values);
    else
        result = Py_NewRef(Py_None);
    PyBuffer_Release(&values);
no_values:
    PyBuffer_Release(&keys);
no_keys:
    PyBuffer_Release(&times);
no_times:
    PyBuffer_Release(&records);
    return result;
}

/* Records, and positions in them that read_records() found. */
typedef struct {
    Py_buffer records, positions;
    Py_ssize_t count;
} Places;

static int open_places(PyObject *records, PyObject *positions, Places *places)
{
    if (PyObject_GetBuffer(records, &places->records, PyBUF_SIMPLE) < 0)
        return -1;
    if (PyObject_GetBuffer(positions, &places->positions, PyBUF_SIMPLE) < 0) {
        PyBuffer_Release(&places->records);
        return -1;
    }
    places->count = places->positions.len / (Py_ssize_t)sizeof(uint32_t);
    return 0;
}

static void close_places(Places *places)
{
    PyBuffer_Release(&places->positions);
    PyBuffer_Release(&places->records);
}

/* The key or value at such a position; -1 where there can't be one, with an error set. */
static inline int item_at(Places *places, Py_ssize_t index, bytes_at *item, int32_t *size)
{
    uint32_t position = ((const uint32_t *)places->positions.buf)[index];
    bytes_at start = places->records.buf, at = start + position;
    if (position <= places->records.len && read_bytes(&at, start + places->records.len, item, size))
        return 0;
    PyErr_SetString(PyExc_ValueError, "there is no key or value at this position");
    return -1;
}

PyDoc_STRVAR(read_items_doc,
"read_items(records, positions)\n--\n\n"
"The keys or values of the records, at positions that read_records() found.");

static PyObject *read_items(PyObject *self, PyObject *const *args, Py_ssize_t nargs)
{
    if (nargs != 2) {
        PyErr_SetString(PyExc_TypeError, "read_items takes 2 arguments");
        return NULL;
    }
    Places places;
    if (open_places(args[0], args[1], &places) < 0)
        return NULL;
    PyObject *result = PyList_New(places.count);
    for (Py_ssize_t index = 0; result != NULL && index < places.count; index++) {
        bytes_at start;
        int32_t size;
        PyObject *item = item_at(&places, index, &start, &size) < 0 ? NULL : as_object(start, size);
        if (item == NULL)
            Py_CLEAR(result);
        else
            PyList_SET_ITEM(result, index, item);
    }
    close_places(&places);
    return result;
}

/* The size of a key or value with its length; -1 where it is neither bytes nor None. */
static inline Py_ssize_t written_size(PyObject *item)
{
    if (item == Py_None)
        return 1;
    if (!PyBytes_Check(item))
        return -1;
    Py_ssize_t size = PyBytes_GET_SIZE(item);
    return size > INT32_MAX ? -1 : size + size_of(zigzag(size));
}

static inline unsigned char *write_item(unsigned char *at, PyObject *item)
{
    if (item == Py_None) {
        *at++ = 1;
        return at;
    }
    Py_ssize_t size = PyBytes_GET_SIZE(item);
    at = put(at, zigzag(size));
    memcpy(at, PyBytes_AS_STRING(item), size);
    return at + size;
}

/* ------------------------------------------------------------------------------------------------- partitions */

#define MULTIPLIER 0x5BD1E995u

static inline uint32_t murmur2(bytes_at key, Py_ssize_t size)
{
    uint32_t value = 0x9747B28Cu ^ (uint32_t)size;
    for (; size >= 4; key += 4, size -= 4) {
        uint32_t word = (uint32_t)key[0] | (uint32_t)key[1] << 8 | (uint32_t)key[2] << 16 | (uint32_t)key[3] << 24;
        word *= MULTIPLIER;
        word ^= word >> 24;
        value = value * MULTIPLIER ^ word * MULTIPLIER;
    }
    if (size) {
        for (Py_ssize_t index = 0; index < size; index++)
            value ^= (uint32_t)key[index] << 8 * index;
        value *= MULTIPLIER;
    }
    value ^= value >> 13;
    value *= MULTIPLIER;
    return value ^ value >> 15;
}

PyDoc_STRVAR(partitions_doc,
"partitions(keys, partition_count, null_partition)\n--\n\n"
"The partition of each key, as Kafka's default partitioner gives it. None for what is no list or tuple of bytes and None.");

static PyObject *partitions(PyObject *self, PyObject *const *args, Py_ssize_t nargs)
{
    if (nargs != 3) {
        PyErr_SetString(PyExc_TypeError, "partitions takes 3 arguments");
        return NULL;
    }
    if (!PyList_CheckExact(args[0]) && !PyTuple_CheckExact(args[0]))
        Py_RETURN_NONE;
    long count = PyLong_AsLong(args[1]);
    if (count == -1 && PyErr_Occurred())
        return NULL;
    if (count < 1 || count > INT32_MAX)
        Py_RETURN_NONE;
    Py_ssize_t size = PySequence_Fast_GET_SIZE(args[0]);
    PyObject *result = PyList_New(size);
    if (result == NULL)
        return NULL;
    for (Py_ssize_t index = 0; index < size; index++) {
        PyObject *key = PySequence_Fast_GET_ITEM(args[0], index), *partition;
        if (key == Py_None)
            partition = Py_NewRef(args[2]);
        else if (PyBytes_Check(key)) {
            uint32_t hash = murmur2((bytes_at)PyBytes_AS_STRING(key), PyBytes_GET_SIZE(key));
            partition = PyLong_FromLong((long)(hash & 0x7FFFFFFF) % count);
        } else {
            Py_DECREF(result);
            Py_RETURN_NONE;
        }
        if (partition == NULL) {
            Py_DECREF(result);
            return NULL;
        }
        PyList_SET_ITEM(result, index, partition);
    }
    return result;
}

PyDoc_STRVAR(split_doc,
"split(partitions, partition_count, column, ...)\n--\n\n"
"For each partition the items of each column that belong there, as lists. None for what are no lists or tuples of the same\n"
"length, or partitions that there are not.");

static PyObject *split(PyObject *self, PyObject *const *args, Py_ssize_t nargs)
{
    if (nargs < 3) {
        PyErr_SetString(PyExc_TypeError, "split takes at least 3 arguments");
        return NULL;
    }
    long count = PyLong_AsLong(args[1]);
    if (count == -1 && PyErr_Occurred())
        return NULL;
    if (count < 1 || count > INT16_MAX || !PyList_CheckExact(args[0]))
        Py_RETURN_NONE;
    Py_ssize_t size = PyList_GET_SIZE(args[0]);
    for (Py_ssize_t each = 2; each < nargs; each++)
        if (!(PyList_CheckExact(args[each]) || PyTuple_CheckExact(args[each])) ||
            PySequence_Fast_GET_SIZE(args[each]) != size)
            Py_RETURN_NONE;
    Py_ssize_t *sizes = PyMem_Calloc(count, sizeof(Py_ssize_t));
    int16_t *chosen = PyMem_Malloc((size ? size : 1) * sizeof(int16_t));
    PyObject *result = NULL;
    if (sizes == NULL || chosen == NULL) {
        PyErr_NoMemory();
        goto done;
    }
    for (Py_ssize_t index = 0; index < size; index++) {
        PyObject *item = PyList_GET_ITEM(args[0], index);
        long partition = PyLong_CheckExact(item) ? PyLong_AsLong(item) : -1;
        if (partition < 0 || partition >= count) {
            PyErr_Clear();
            result = Py_NewRef(Py_None);
            goto done;
        }
        chosen[index] = (int16_t)partition;
        sizes[partition]++;
    }
    result = PyList_New(count);
    for (long partition = 0; result != NULL && partition < count; partition++) {
        PyObject *columns = PyTuple_New(nargs - 2);
        if (columns == NULL) {
            Py_CLEAR(result);
            break;
        }
        PyList_SET_ITEM(result, partition, columns);
        for (Py_ssize_t each = 2; each < nargs; each++) {
            PyObject *items = PyList_New(sizes[partition]);
            if (items == NULL) {
                Py_CLEAR(result);
                goto done;
            }
            PyTuple_SET_ITEM(columns, each - 2, items);
        }
        sizes[partition] = 0;
    }
    for (Py_ssize_t index = 0; result != NULL && index < size; index++) {
        PyObject *columns = PyList_GET_ITEM(result, chosen[index]);
        Py_ssize_t at = sizes[chosen[index]]++;
        for (Py_ssize_t each = 2; each < nargs; each++)
            PyList_SET_ITEM(PyTuple_GET_ITEM(columns, each - 2), at,
                            Py_NewRef(PySequence_Fast_GET_ITEM(args[each], index)));
    }
done:
    PyMem_Free(sizes);
    PyMem_Free(chosen);
    return result;
}

#include "batch_writing.h"
#include "key_numbers.h"
#include "message_reading.h"
#include "placed.h"

/* ------------------------------------------------------------------------------------------------- the module */

static PyMethodDef functions[] = {
    {"read_records", (PyCFunction)(void (*)(void))read_records, METH_FASTCALL, read_records_doc},
    {"read_items", (PyCFunction)(void (*)(void))read_items, METH_FASTCALL, read_items_doc},
    {"numbers_at", (PyCFunction)(void (*)(void))numbers_at, METH_FASTCALL, numbers_at_doc},
    {"are_ascending", (PyCFunction)are_ascending, METH_O, are_ascending_doc},
    {"add_counts", (PyCFunction)(void (*)(void))add_counts, METH_FASTCALL, add_counts_doc},
    {"write_apart", (PyCFunction)(void (*)(void))write_apart, METH_FASTCALL, write_apart_doc},
    {"place_records", (PyCFunction)(void (*)(void))place_records, METH_FASTCALL, place_records_doc},
    {"take_items", (PyCFunction)(void (*)(void))take_items, METH_FASTCALL, take_items_doc},
    {"split", (PyCFunction)(void (*)(void))split, METH_FASTCALL, split_doc},
    {"partitions", (PyCFunction)(void (*)(void))partitions, METH_FASTCALL, partitions_doc},
    {NULL, NULL, 0, NULL},
};

static int add_type(PyObject *module, const char *name, PyType_Spec *spec)
{
    PyObject *type = PyType_FromSpec(spec);
    if (type == NULL)
        return -1;
    int failed = PyModule_AddObjectRef(module, name, type);
    Py_DECREF(type);
    return failed;
}

static int fill(PyObject *module)
{
    const char *pure = getenv("STREAMSRT_PURE");
    if (pure != NULL && strcmp(pure, "1") == 0) {
        PyErr_SetString(PyExc_ImportError, "STREAMSRT_PURE is 1");
        return -1;
    }
    if (add_type(module, "KeyNumbers", &key_numbers_spec) < 0 || add_type(module, "WrittenRecords", &written_spec) < 0)
        return -1;
    return add_type(module, "MessageReader", &message_reader_spec);
}

static PyModuleDef_Slot module_slots[] = {{Py_mod_exec, fill}, {0, NULL}};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_streamsrt_kernels", "The loops of streamsrt.wire.kernels in C.", 0, functions, module_slots,
};

PyMODINIT_FUNC PyInit__streamsrt_kernels(void)
{
    return PyModuleDef_Init(&definition);
}
