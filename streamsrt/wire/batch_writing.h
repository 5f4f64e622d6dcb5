/* Records of a partition, written as they come: the bytes of the batch that they become. A part of kernels.c. */

#define HEAD_BYTES 61
/* Attributes, the number of headers, and the sizes of a record, its time, its offset, its key and its value. */
#define AROUND_BYTES_MAX (2 + 5 + 10 + 5 + 5 + 5)
#define ITEM_BYTES_MAX ((Py_ssize_t)1 << 29)
#define BATCH_BYTES_MAX ((Py_ssize_t)1 << 30)
#define LEAST_ROOM_BYTES 1024
/* So that the difference of any two times is below TIME_MAX. */
#define WRITTEN_TIME_MAX (TIME_MAX / 2)

/* `bytes`: room for the batch's head, then the records; NULL if there are none. It is changed only while nobody else has it.
   `used`: how much of it is written. `exports`: how many buffers of it are in use, during which nothing may change. */
typedef struct {
    PyObject_HEAD
    PyObject *bytes;
    int64_t *times;
    Py_ssize_t used, count, times_room, exports;
    int64_t highest;
} WrittenRecords;

/* Makes room for so many records and bytes more. */
static int make_room(WrittenRecords *self, Py_ssize_t count, Py_ssize_t size)
{
    if (self->count + count > self->times_room) {
        Py_ssize_t room = self->count + count + self->count / 2;
        int64_t *times = PyMem_Realloc(self->times, room * sizeof(int64_t));
        if (times == NULL) {
            PyErr_NoMemory();
            return -1;
        }
        self->times = times;
        self->times_room = room;
    }
    Py_ssize_t used = self->bytes == NULL ? HEAD_BYTES : self->used, needed = used + size;
    Py_ssize_t room = self->bytes == NULL ? 0 : PyBytes_GET_SIZE(self->bytes);
    if (needed <= room && Py_REFCNT(self->bytes) == 1)
        return 0;
    room = needed > 2 * room ? needed : 2 * room;
    room = room > LEAST_ROOM_BYTES ? room : LEAST_ROOM_BYTES;
    /* Not resized: where that fails, the records would be lost. */
    PyObject *bytes = PyBytes_FromStringAndSize(NULL, room);
    if (bytes == NULL)
        return -1;
    if (self->bytes != NULL)
        memcpy(PyBytes_AS_STRING(bytes), PyBytes_AS_STRING(self->bytes), used);
    Py_XSETREF(self->bytes, bytes);
    self->used = used;
    return 0;
}

/* Writes a record, for which there is room. */
static inline void write_record(WrittenRecords *self, PyObject *key, PyObject *value, int64_t time)
{
    if (self->count == 0 || time > self->highest)
        self->highest = time;
    self->times[self->count] = time;
    uint64_t delta = zigzag(time - self->times[0]), offset = zigzag(self->count);
    Py_ssize_t size = 2 + size_of(delta) + size_of(offset) + written_size(key) + written_size(value);
    unsigned char *start = (unsigned char *)PyBytes_AS_STRING(self->bytes), *at = put(start + self->used, zigzag(size));
    *at++ = 0;
    at = put(at, delta);
    at = put(at, offset);
    at = write_item(at, key);
    at = write_item(at, value);
    *at++ = 0;
    self->used = at - start;
    self->count++;
}

/* Columns of records, and for each record its time and which of the writers it is for. `counts`, `sizes`: how many records
   each writer gets, and how many bytes at most. */
typedef struct {
    PyObject *keys, *values, *timestamps;
    Py_ssize_t start, stop;
    int64_t *times;
    uint16_t *chosen;
    Py_ssize_t *counts, *sizes;
} Columns;

static int open_columns(Columns *columns, PyObject *const *args, Py_ssize_t writers)
{
    *columns = (Columns){args[0], args[1], args[2], 0, 0, NULL, NULL, NULL, NULL};
    for (int each = 0; each < 3; each++)
        if (!PyList_CheckExact(args[each]) || PyList_GET_SIZE(args[each]) != PyList_GET_SIZE(args[0]))
            return 0;
    columns->stop = PyList_GET_SIZE(args[0]);
    columns->counts = PyMem_Calloc(writers, sizeof(Py_ssize_t));
    columns->sizes = PyMem_Calloc(writers, sizeof(Py_ssize_t));
    if (columns->counts != NULL && columns->sizes != NULL)
        return 1;
    PyErr_NoMemory();
    return 0;
}

static int open_records(Columns *columns)
{
    Py_ssize_t count = columns->stop - columns->start;
    columns->times = PyMem_Malloc((count ? count : 1) * sizeof(int64_t));
    columns->chosen = PyMem_Calloc(count ? count : 1, sizeof(uint16_t));
    if (columns->times != NULL && columns->chosen != NULL)
        return 1;
    PyErr_NoMemory();
    return 0;
}

static void close_columns(Columns *columns)
{
    PyMem_Free(columns->times);
    PyMem_Free(columns->chosen);
    PyMem_Free(columns->counts);
    PyMem_Free(columns->sizes);
}

/* The bytes that the record takes at most; -1 where it can't be written here. Fills in its time. */
static inline Py_ssize_t measured(Columns *columns, Py_ssize_t index)
{
    PyObject *time = PyList_GET_ITEM(columns->timestamps, index);
    Py_ssize_t key_size = written_size(PyList_GET_ITEM(columns->keys, index));
    Py_ssize_t value_size = written_size(PyList_GET_ITEM(columns->values, index));
    if (!PyLong_CheckExact(time) || key_size < 0 || value_size < 0 || key_size > ITEM_BYTES_MAX ||
        value_size > ITEM_BYTES_MAX)
        return -1;
    int overflow;
    int64_t at = PyLong_AsLongLongAndOverflow(time, &overflow);
    if (overflow || at <= -WRITTEN_TIME_MAX || at >= WRITTEN_TIME_MAX)
        return -1;
    columns->times[index - columns->start] = at;
    return AROUND_BYTES_MAX + key_size + value_size;
}

/* The writer of a key; -1 where the key is none. */
static inline Py_ssize_t writer_of(PyObject *key, Py_ssize_t writers, Py_ssize_t null_writer)
{
    if (key == Py_None)
        return null_writer;
    if (!PyBytes_Check(key))
        return -1;
    uint32_t hash = murmur2((bytes_at)PyBytes_AS_STRING(key), PyBytes_GET_SIZE(key));
    return (Py_ssize_t)(hash & 0x7FFFFFFF) % writers;
}

/* Whether all of the records can be written; each is given its writer by its key in `placed_by`, if that is no NULL. */
static int measure_all(Columns *columns, PyObject *placed_by, Py_ssize_t writers, Py_ssize_t null_writer)
{
    for (Py_ssize_t index = columns->start; index < columns->stop; index++) {
        Py_ssize_t size = measured(columns, index), chosen = 0;
        if (placed_by != NULL)
            chosen = writer_of(PyList_GET_ITEM(placed_by, index), writers, null_writer);
        if (size < 0 || chosen < 0)
            return 0;
        columns->chosen[index - columns->start] = (uint16_t)chosen;
        columns->counts[chosen]++;
        columns->sizes[chosen] += size;
        if (columns->sizes[chosen] > BATCH_BYTES_MAX)
            return 0;
    }
    return 1;
}

/* Makes room in each of the writers. 1: there is; 0: one of them would get too large; -1: with an error set. */
static int room_in_all(Columns *columns, PyObject *const *writers, Py_ssize_t count)
{
    for (Py_ssize_t each = 0; each < count; each++) {
        WrittenRecords *writer = (WrittenRecords *)writers[each];
        if (writer->exports) {
            PyErr_SetString(PyExc_BufferError, "records can't be added while their bytes are looked at");
            return -1;
        }
        if (writer->used + columns->sizes[each] > BATCH_BYTES_MAX || writer->count + columns->counts[each] > INT32_MAX)
            return 0;
    }
    for (Py_ssize_t each = 0; each < count; each++)
        if (columns->counts[each] &&
            make_room((WrittenRecords *)writers[each], columns->counts[each], columns->sizes[each]) < 0)
            return -1;
    return 1;
}

/* Writes all records or none. 1: they are written; 0: they can't be; -1: with an error set. */
static int write_all(Columns *columns, PyObject *const *writers, Py_ssize_t count, PyObject *placed_by,
                     Py_ssize_t null_writer)
{
    if (!open_records(columns))
        return -1;
    if (!measure_all(columns, placed_by, count, null_writer))
        return 0;
    int result = room_in_all(columns, writers, count);
    for (Py_ssize_t index = columns->start; result == 1 && index < columns->stop; index++) {
        Py_ssize_t at = index - columns->start;
        write_record((WrittenRecords *)writers[columns->chosen[at]], PyList_GET_ITEM(columns->keys, index),
                     PyList_GET_ITEM(columns->values, index), columns->times[at]);
    }
    return result;
}

PyDoc_STRVAR(written_add_doc,
"add(keys, values, timestamps, start, stop)\n--\n\n"
"Writes the records `start` to `stop` of columns behind the others, without headers. False: nothing was written, as they\n"
"are no lists of bytes, None and times.");

static PyObject *WrittenRecords_add(WrittenRecords *self, PyObject *const *args, Py_ssize_t nargs)
{
    if (nargs != 5) {
        PyErr_SetString(PyExc_TypeError, "add takes 5 arguments");
        return NULL;
    }
    Py_ssize_t start = PyLong_AsSsize_t(args[3]), stop = PyLong_AsSsize_t(args[4]);
    if (PyErr_Occurred())
        return NULL;
    Columns columns;
    int result = 0;
    if (open_columns(&columns, args, 1) && 0 <= start && start <= stop && stop <= columns.stop) {
        PyObject *writers[1] = {(PyObject *)self};
        columns.start = start;
        columns.stop = stop;
        result = write_all(&columns, writers, 1, NULL, 0);
    }
    close_columns(&columns);
    return result < 0 || PyErr_Occurred() ? NULL : PyBool_FromLong(result);
}

PyDoc_STRVAR(written_sealed_doc,
"sealed(head)\n--\n\n"
"The batch: its head, and the records. They stay until clear().");

static PyObject *WrittenRecords_sealed(WrittenRecords *self, PyObject *head)
{
    if (!PyBytes_Check(head) || PyBytes_GET_SIZE(head) != HEAD_BYTES || self->bytes == NULL || self->exports) {
        PyErr_SetString(PyExc_ValueError, "records and their head make a batch");
        return NULL;
    }
    if (Py_REFCNT(self->bytes) > 1) {
        PyObject *bytes = PyBytes_FromStringAndSize(PyBytes_AS_STRING(self->bytes), self->used);
        if (bytes == NULL)
            return NULL;
        Py_SETREF(self->bytes, bytes);
    } else if (_PyBytes_Resize(&self->bytes, self->used) < 0) {
        self->count = self->used = 0;
        return NULL;
    }
    memcpy(PyBytes_AS_STRING(self->bytes), PyBytes_AS_STRING(head), HEAD_BYTES);
    return Py_NewRef(self->bytes);
}

PyDoc_STRVAR(written_times_doc, "times(start, step)\n--\n\nEvery `step`-th time from that of record `start` on.");

static PyObject *WrittenRecords_times(WrittenRecords *self, PyObject *const *args, Py_ssize_t nargs)
{
    if (nargs != 2) {
        PyErr_SetString(PyExc_TypeError, "times takes 2 arguments");
        return NULL;
    }
    Py_ssize_t start = PyLong_AsSsize_t(args[0]), step = PyLong_AsSsize_t(args[1]);
    if (PyErr_Occurred())
        return NULL;
    if (start < 0 || step < 1) {
        PyErr_SetString(PyExc_ValueError, "times are counted from 0 on");
        return NULL;
    }
    Py_ssize_t count = start < self->count ? (self->count - start - 1) / step + 1 : 0;
    PyObject *result = PyList_New(count);
    for (Py_ssize_t index = 0; result != NULL && index < count; index++) {
        PyObject *time = PyLong_FromLongLong(self->times[start + index * step]);
        if (time == NULL)
            Py_CLEAR(result);
        else
            PyList_SET_ITEM(result, index, time);
    }
    return result;
}

PyDoc_STRVAR(written_bounds_doc,
"bounds()\n--\n\nThe time of the first record, and the highest one; there is at least one record.");

static PyObject *WrittenRecords_bounds(WrittenRecords *self, PyObject *nothing)
{
    if (self->count == 0) {
        PyErr_SetString(PyExc_ValueError, "there are no records");
        return NULL;
    }
    return Py_BuildValue("LL", (long long)self->times[0], (long long)self->highest);
}

PyDoc_STRVAR(written_clear_doc, "clear()\n--\n\nForgets all records.");

static PyObject *WrittenRecords_clear(WrittenRecords *self, PyObject *nothing)
{
    if (self->exports) {
        PyErr_SetString(PyExc_BufferError, "records can't be forgotten while their bytes are looked at");
        return NULL;
    }
    Py_CLEAR(self->bytes);
    self->used = self->count = 0;
    Py_RETURN_NONE;
}

static Py_ssize_t WrittenRecords_length(WrittenRecords *self)
{
    return self->count;
}

/* The records, without the room for the batch's head. */
static int WrittenRecords_getbuffer(WrittenRecords *self, Py_buffer *view, int flags)
{
    char *start = self->bytes == NULL ? "" : PyBytes_AS_STRING(self->bytes) + HEAD_BYTES;
    Py_ssize_t size = self->bytes == NULL ? 0 : self->used - HEAD_BYTES;
    if (PyBuffer_FillInfo(view, (PyObject *)self, start, size, 1, flags) < 0)
        return -1;
    self->exports++;
    return 0;
}

static void WrittenRecords_releasebuffer(WrittenRecords *self, Py_buffer *view)
{
    self->exports--;
}

static void WrittenRecords_dealloc(WrittenRecords *self)
{
    PyTypeObject *type = Py_TYPE(self);
    Py_XDECREF(self->bytes);
    PyMem_Free(self->times);
    type->tp_free((PyObject *)self);
    Py_DECREF(type);
}

static int are_writers(PyObject *writers)
{
    if (!PyTuple_CheckExact(writers) || PyTuple_GET_SIZE(writers) < 1 || PyTuple_GET_SIZE(writers) > INT16_MAX)
        return 0;
    for (Py_ssize_t each = 0; each < PyTuple_GET_SIZE(writers); each++)
        if (Py_TYPE(PyTuple_GET_ITEM(writers, each))->tp_dealloc != (destructor)WrittenRecords_dealloc)
            return 0;
    return 1;
}

PyDoc_STRVAR(write_apart_doc,
"write_apart(writers, keys, values, timestamps, placed_by, null_partition)\n--\n\n"
"Writes each record with the writer of its partition, which Kafka's default partitioner gives its key in `placed_by`.\n"
"False: nothing was written, as these are no lists of bytes, None and times.");

static PyObject *write_apart(PyObject *module, PyObject *const *args, Py_ssize_t nargs)
{
    if (nargs != 6) {
        PyErr_SetString(PyExc_TypeError, "write_apart takes 6 arguments");
        return NULL;
    }
    Py_ssize_t null_writer = PyLong_AsSsize_t(args[5]);
    if (null_writer == -1 && PyErr_Occurred())
        return NULL;
    if (!are_writers(args[0]) || null_writer < 0 || null_writer >= PyTuple_GET_SIZE(args[0]))
        Py_RETURN_FALSE;
    Columns columns;
    int result = 0;
    Py_ssize_t count = PyTuple_GET_SIZE(args[0]);
    if (open_columns(&columns, args + 1, count) && PyList_CheckExact(args[4]) && PyList_GET_SIZE(args[4]) == columns.stop)
        result = write_all(&columns, ((PyTupleObject *)args[0])->ob_item, count, args[4], null_writer);
    close_columns(&columns);
    return result < 0 || PyErr_Occurred() ? NULL : PyBool_FromLong(result);
}

static PyMethodDef written_methods[] = {
    {"add", (PyCFunction)(void (*)(void))WrittenRecords_add, METH_FASTCALL, written_add_doc},
    {"sealed", (PyCFunction)WrittenRecords_sealed, METH_O, written_sealed_doc},
    {"times", (PyCFunction)(void (*)(void))WrittenRecords_times, METH_FASTCALL, written_times_doc},
    {"bounds", (PyCFunction)WrittenRecords_bounds, METH_NOARGS, written_bounds_doc},
    {"clear", (PyCFunction)WrittenRecords_clear, METH_NOARGS, written_clear_doc},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot written_slots[] = {
    {Py_tp_doc, "Records of a partition, written as they come."},
    {Py_tp_dealloc, WrittenRecords_dealloc},
    {Py_tp_methods, written_methods},
    {Py_mp_length, WrittenRecords_length},
    {Py_bf_getbuffer, WrittenRecords_getbuffer},
    {Py_bf_releasebuffer, WrittenRecords_releasebuffer},
    {0, NULL},
};

static PyType_Spec written_spec = {
    "_streamsrt_kernels.WrittenRecords", sizeof(WrittenRecords), 0, Py_TPFLAGS_DEFAULT, written_slots,
};
