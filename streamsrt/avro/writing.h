/* Bytes out of values, step by step. A part of kernels.c. */

typedef struct {
    unsigned char *start, *at, *end;
    unsigned char first[FIRST_ROOM];
} Output;

/* Makes room; -1 with an exception where there is no memory. */
static inline int make_room(Output *output, Py_ssize_t size)
{
    if (size <= output->end - output->at)
        return 0;
    Py_ssize_t used = output->at - output->start;
    if (size > PY_SSIZE_T_MAX / 4 - used) {
        PyErr_NoMemory();
        return -1;
    }
    Py_ssize_t room = 2 * (used + size);
    int is_first = output->start == output->first;
    unsigned char *start = PyMem_Realloc(is_first ? NULL : output->start, room);
    if (start == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    if (is_first)
        memcpy(start, output->first, used);
    output->start = start;
    output->at = start + used;
    output->end = start + room;
    return 0;
}

static int write_bytes(Output *output, const void *bytes, Py_ssize_t size)
{
    if (make_room(output, size) < 0)
        return -1;
    memcpy(output->at, bytes, size);
    output->at += size;
    return 0;
}

static int write_number(Output *output, int64_t number)
{
    uint64_t left = ((uint64_t)number << 1) ^ (uint64_t)(number >> 63);
    if (make_room(output, 10) < 0)
        return -1;
    for (; left >= 0x80; left >>= 7)
        *output->at++ = (unsigned char)(left | 0x80);
    *output->at++ = (unsigned char)left;
    return 0;
}

static int write_sized(Output *output, const void *bytes, Py_ssize_t size)
{
    return write_number(output, size) < 0 ? -1 : write_bytes(output, bytes, size);
}

static int write_integer(Output *output, PyObject *value, int64_t limit)
{
    int overflow = 1;
    int64_t number = PyLong_CheckExact(value) ? PyLong_AsLongLongAndOverflow(value, &overflow) : 0;
    return overflow || number > limit || number < -limit - 1 ? -1 : write_number(output, number);
}

static int write_real(Output *output, PyObject *value, int size)
{
    if (!PyFloat_CheckExact(value) && !PyLong_CheckExact(value))
        return -1;
    double number = PyFloat_AsDouble(value);
    char bytes[8];
    if ((number == -1 && PyErr_Occurred()) ||
        (size == 4 ? PyFloat_Pack4(number, bytes, 1) : PyFloat_Pack8(number, bytes, 1)) < 0) {
        forget_exception();
        return -1;
    }
    return write_bytes(output, bytes, size);
}

static int write_text(Output *output, PyObject *value)
{
    if (!PyUnicode_Check(value))
        return -1;
    if (PyUnicode_IS_ASCII(value))
        return write_sized(output, PyUnicode_1BYTE_DATA(value), PyUnicode_GET_LENGTH(value));
    /* Not with PyUnicode_AsUTF8(), for which the text would keep its bytes. */
    PyObject *bytes = PyUnicode_AsUTF8String(value);
    if (bytes == NULL) {
        forget_exception();
        return -1;
    }
    int failed = write_sized(output, PyBytes_AS_STRING(bytes), PyBytes_GET_SIZE(bytes));
    Py_DECREF(bytes);
    return failed;
}

/* The item of a dict, held; NULL where there is none. */
static PyObject *item_of(PyObject *dict, PyObject *key)
{
    PyObject *found = PyDict_GetItemWithError(dict, key);
    if (found == NULL && PyErr_Occurred())
        forget_exception();
    return Py_XNewRef(found);
}

static int write_step(const Step *steps, const Step *step, PyObject *value, Output *output);

static int write_array(const Step *steps, const Step *step, PyObject *value, Output *output)
{
    if (!PyList_CheckExact(value))
        return -1;
    Py_ssize_t count = PyList_GET_SIZE(value);
    if (count && write_number(output, count) < 0)
        return -1;
    for (Py_ssize_t index = 0; index < count && PyList_GET_SIZE(value) == count; index++) {
        PyObject *item = Py_NewRef(PyList_GET_ITEM(value, index));
        int failed = write_step(steps, steps + step->first, item, output);
        Py_DECREF(item);
        if (failed)
            return -1;
    }
    return PyList_GET_SIZE(value) == count ? write_number(output, 0) : -1;
}

static int write_map(const Step *steps, const Step *step, PyObject *value, Output *output)
{
    if (!PyDict_CheckExact(value))
        return -1;
    Py_ssize_t count = PyDict_GET_SIZE(value), at = 0, written = 0;
    if (count && write_number(output, count) < 0)
        return -1;
    PyObject *key, *item;
    while (PyDict_GET_SIZE(value) == count && written < count && PyDict_Next(value, &at, &key, &item)) {
        Py_INCREF(key);
        Py_INCREF(item);
        int failed = write_text(output, key) < 0 || write_step(steps, steps + step->first, item, output) < 0;
        Py_DECREF(item);
        Py_DECREF(key);
        if (failed)
            return -1;
        written++;
    }
    return PyDict_GET_SIZE(value) == count && written == count ? write_number(output, 0) : -1;
}

static int write_record(const Step *steps, const Step *step, PyObject *value, Output *output)
{
    if (!PyDict_CheckExact(value))
        return -1;
    for (Py_ssize_t index = 0; index < step->count; index++) {
        PyObject *item = item_of(value, PyTuple_GET_ITEM(step->known, index));
        if (item == NULL)
            return -1;
        int failed = write_step(steps, steps + step->first + index, item, output);
        Py_DECREF(item);
        if (failed)
            return -1;
    }
    return 0;
}

static int write_place(const Step *step, PyObject *value, Output *output)
{
    PyObject *place = PyUnicode_CheckExact(value) ? item_of(PyTuple_GET_ITEM(step->known, 0), value) : NULL;
    int failed = place == NULL || !PyBytes_CheckExact(place) ||
                 write_bytes(output, PyBytes_AS_STRING(place), PyBytes_GET_SIZE(place)) < 0;
    Py_XDECREF(place);
    return failed ? -1 : 0;
}

static int write_prepared(const Step *steps, const Step *step, PyObject *value, Output *output)
{
    PyObject *arguments[] = {value, PyTuple_GET_ITEM(step->known, 1)};
    PyObject *prepared = PyObject_Vectorcall(PyTuple_GET_ITEM(step->known, 0), arguments, 2, NULL);
    if (prepared == NULL) {
        forget_exception();
        return -1;
    }
    int failed = write_step(steps, steps + step->first, prepared, output);
    Py_DECREF(prepared);
    return failed;
}

static int write_step(const Step *steps, const Step *step, PyObject *value, Output *output)
{
    switch (step->kind) {
    case NONE:
        return value == Py_None ? 0 : -1;
    case BOOLEAN:
        return PyBool_Check(value) ? write_bytes(output, value == Py_True ? "\1" : "\0", 1) : -1;
    case INT:
        return write_integer(output, value, INT32_MAX);
    case LONG:
        return write_integer(output, value, INT64_MAX);
    case FLOAT:
        return write_real(output, value, 4);
    case DOUBLE:
        return write_real(output, value, 8);
    case BYTES:
        return PyBytes_CheckExact(value) ? write_sized(output, PyBytes_AS_STRING(value), PyBytes_GET_SIZE(value)) : -1;
    case STRING:
        return write_text(output, value);
    case FIXED:
        if (!PyBytes_CheckExact(value) || PyBytes_GET_SIZE(value) != step->number)
            return -1;
        return write_bytes(output, PyBytes_AS_STRING(value), PyBytes_GET_SIZE(value));
    case PLACE:
        return write_place(step, value, output);
    case UNION:
        if (value == Py_None)
            return write_number(output, step->number);
        return write_number(output, 1 - step->number) < 0 ? -1 : write_step(steps, steps + step->first, value, output);
    case ARRAY:
        return write_array(steps, step, value, output);
    case MAP:
        return write_map(steps, step, value, output);
    case RECORD:
        return write_record(steps, step, value, output);
    case PREPARE:
        return write_prepared(steps, step, value, output);
    default:
        return -1;
    }
}

static PyObject *write_value(Coder *self, PyObject *value, PyObject *head)
{
    if (PyBytes_CheckExact(head)) {
        Output output;
        output.start = output.at = output.first;
        output.end = output.first + FIRST_ROOM;
        PyObject *written = NULL;
        if (write_bytes(&output, PyBytes_AS_STRING(head), PyBytes_GET_SIZE(head)) == 0 &&
            write_step(self->steps, self->steps, value, &output) == 0)
            written = PyBytes_FromStringAndSize((const char *)output.start, output.at - output.start);
        if (output.start != output.first)
            PyMem_Free(output.start);
        if (written != NULL || PyErr_Occurred())
            return written;
    }
    return PyObject_CallFunctionObjArgs(self->otherwise, value, head, NULL);
}
