/* Records where they lie, and bytes taken from there: what a restore reads. A part of kernels.c. */

enum { KEYS_AT, KEY_SIZES, VALUES_AT, VALUE_SIZES, TIMES, OFFSETS, PLACED_COLUMNS };

#define KNOWN_ROWS 5

/* What is known of each batch. `columns`: one behind the other, each with room for all records. */
typedef struct {
    const int64_t *sizes, *counts, *base_times, *base_offsets, *next_offsets;
    int64_t *columns[PLACED_COLUMNS];
    int64_t last_offset;
} Placing;

static inline int place_record(bytes_at start, bytes_at *place, bytes_at end, int64_t index, Placing *to, Py_ssize_t batch)
{
    bytes_at at = *place, key, value;
    int32_t length, offset_delta, key_size, value_size;
    int64_t time_delta;
    if (read_int(&at, end, &length) < 0 || length < 1 || length > end - at)
        return 0;
    bytes_at record_end = at + length;
    if (*at++ != 0 || read_long(&at, record_end, &time_delta) < 0 || time_delta <= -TIME_MAX || time_delta >= TIME_MAX)
        return 0;
    if (read_int(&at, record_end, &offset_delta) < 0 || offset_delta < 0)
        return 0;
    int64_t offset = to->base_offsets[batch] + offset_delta;
    if (offset <= to->last_offset || offset >= to->next_offsets[batch])
        return 0;
    if (!read_bytes(&at, record_end, &key, &key_size) || !read_bytes(&at, record_end, &value, &value_size))
        return 0;
    if (at + 1 != record_end || *at != 0)
        return 0;
    to->columns[KEYS_AT][index] = key - start;
    to->columns[KEY_SIZES][index] = key_size;
    to->columns[VALUES_AT][index] = value - start;
    to->columns[VALUE_SIZES][index] = value_size;
    to->columns[TIMES][index] = to->base_times[batch] + time_delta;
    to->columns[OFFSETS][index] = to->last_offset = offset;
    *place = record_end;
    return 1;
}

/* 0 where the records are not as the first rule wants them. `count`: that of all records. */
static int place_all(bytes_at start, Py_ssize_t size, Py_ssize_t batches, int64_t count, Placing *to)
{
    bytes_at at = start;
    int64_t done = 0;
    for (Py_ssize_t batch = 0; batch < batches; batch++) {
        int64_t base_time = to->base_times[batch], left = size - (at - start);
        if (to->sizes[batch] < 0 || to->sizes[batch] > left || to->counts[batch] < 0 || to->counts[batch] > count - done)
            return 0;
        if (base_time <= -TIME_MAX || base_time >= TIME_MAX || to->base_offsets[batch] > TIME_MAX)
            return 0;
        bytes_at end = at + to->sizes[batch];
        for (int64_t behind = done + to->counts[batch]; done < behind; done++)
            if (!place_record(start, &at, end, done, to, batch))
                return 0;
        if (at != end)
            return 0;
    }
    return done == count;
}

PyDoc_STRVAR(place_records_doc,
"place_records(data, batches, columns)\n--\n\n"
"Where the records of some batches lie in `data`, one batch behind the other. `batches`: five rows of numbers with an entry\n"
"for each batch: its size in bytes, its records, its base timestamp, its base offset and its next offset. `columns`: six rows\n"
"with an entry for each record, which get the places and sizes of keys and values, timestamps and offsets. False unless the\n"
"records have ascending offsets, no attributes and no headers, and are written as a producer does.");

static PyObject *place_records(PyObject *self, PyObject *const *args, Py_ssize_t nargs)
{
    if (nargs != 3) {
        PyErr_SetString(PyExc_TypeError, "place_records takes 3 arguments");
        return NULL;
    }
    Py_buffer data, batches, columns;
    if (PyObject_GetBuffer(args[0], &data, PyBUF_SIMPLE) < 0)
        return NULL;
    if (PyObject_GetBuffer(args[1], &batches, PyBUF_SIMPLE) < 0) {
        PyBuffer_Release(&data);
        return NULL;
    }
    if (PyObject_GetBuffer(args[2], &columns, PyBUF_WRITABLE) < 0) {
        PyBuffer_Release(&batches);
        PyBuffer_Release(&data);
        return NULL;
    }
    Py_ssize_t batch_count = batches.len / (KNOWN_ROWS * (Py_ssize_t)sizeof(int64_t));
    int64_t count = columns.len / (PLACED_COLUMNS * (Py_ssize_t)sizeof(int64_t));
    const int64_t *known = batches.buf;
    Placing to = {known, known + batch_count, known + 2 * batch_count, known + 3 * batch_count, known + 4 * batch_count};
    for (int column = 0; column < PLACED_COLUMNS; column++)
        to.columns[column] = (int64_t *)columns.buf + column * count;
    to.last_offset = INT64_MIN;
    int is_placed = data.len <= INT32_MAX && place_all(data.buf, data.len, batch_count, count, &to);
    PyBuffer_Release(&columns);
    PyBuffer_Release(&batches);
    PyBuffer_Release(&data);
    return PyBool_FromLong(is_placed);
}

static inline PyObject *taken_item(Py_buffer *data, int64_t at, int64_t size)
{
    if (size < 0)
        return Py_NewRef(Py_None);
    if (at >= 0 && at <= data->len && size <= data->len - at)
        return PyBytes_FromStringAndSize((const char *)data->buf + at, size);
    PyErr_SetString(PyExc_ValueError, "there are no bytes at this position");
    return NULL;
}

#define AHEAD 8
#define LINE_BYTES 64
#define LINES_AHEAD 3

#if defined(__GNUC__)
#define FETCH(address) __builtin_prefetch(address)
#else
#define FETCH(address)
#endif

/* Items in any order are rarely in the processor's cache: it gets those that come next meanwhile. */
static inline void fetch_ahead(Py_buffer *buffers, Py_ssize_t index, Py_ssize_t count, Py_ssize_t known)
{
    const int64_t *places = buffers[1].buf, *sizes = buffers[2].buf, *order = buffers[3].buf;
    if (index + 2 * AHEAD < count) {
        int64_t later = order[index + 2 * AHEAD];
        if (later >= 0 && later < known) {
            FETCH(places + later);
            FETCH(sizes + later);
        }
    }
    if (index + AHEAD >= count)
        return;
    int64_t of = order[index + AHEAD];
    if (of < 0 || of >= known)
        return;
    int64_t at = places[of];
    if (at < 0 || at >= buffers[0].len)
        return;
    for (int line = 0; line < LINES_AHEAD && at < buffers[0].len; line++, at += LINE_BYTES)
        FETCH((const char *)buffers[0].buf + at);
}

PyDoc_STRVAR(take_items_doc,
"take_items(data, places, sizes, order)\n--\n\n"
"A list of the bytes at these places of `data`, in that order; None for a negative size.");

static PyObject *take_items(PyObject *self, PyObject *const *args, Py_ssize_t nargs)
{
    if (nargs != 4) {
        PyErr_SetString(PyExc_TypeError, "take_items takes 4 arguments");
        return NULL;
    }
    Py_buffer buffers[4];
    int opened = 0;
    PyObject *result = NULL;
    for (; opened < 4; opened++)
        if (PyObject_GetBuffer(args[opened], &buffers[opened], PyBUF_SIMPLE) < 0)
            goto done;
    const int64_t *places = buffers[1].buf, *sizes = buffers[2].buf, *order = buffers[3].buf;
    Py_ssize_t known = Py_MIN(buffers[1].len, buffers[2].len) / (Py_ssize_t)sizeof(int64_t);
    Py_ssize_t count = buffers[3].len / (Py_ssize_t)sizeof(int64_t);
    result = PyList_New(count);
    for (Py_ssize_t index = 0; result != NULL && index < count; index++) {
        fetch_ahead(buffers, index, count, known);
        int64_t of = order[index];
        PyObject *item = NULL;
        if (of >= 0 && of < known)
            item = taken_item(&buffers[0], places[of], sizes[of]);
        else
            PyErr_SetString(PyExc_IndexError, "there is no such item");
        if (item == NULL)
            Py_CLEAR(result);
        else
            PyList_SET_ITEM(result, index, item);
    }
done:
    while (opened)
        PyBuffer_Release(&buffers[--opened]);
    return result;
}
