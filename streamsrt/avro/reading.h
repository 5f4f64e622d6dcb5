/* Values out of bytes, step by step. A part of kernels.c. */

typedef struct {
    bytes_at at, end;
} Input;

static inline Py_ssize_t left_of(const Input *input)
{
    return input->end - input->at;
}

static inline int read_number(Input *input, int64_t *number)
{
    bytes_at at = input->at;
    uint64_t value = 0;
    for (int shift = 0; shift < NUMBER_BITS_MAX && at < input->end; shift += 7) {
        unsigned char byte = *at++;
        value |= (uint64_t)(byte & 0x7F) << shift;
        if (byte < 0x80) {
            *number = (int64_t)(value >> 1) ^ -(int64_t)(value & 1);
            input->at = at;
            return 0;
        }
    }
    return -1;
}

/* So many bytes; NULL where there are fewer left. */
static inline bytes_at take(Input *input, int64_t size)
{
    if (size < 0 || size > left_of(input))
        return NULL;
    bytes_at start = input->at;
    input->at += size;
    return start;
}

static inline bytes_at take_sized(Input *input, int64_t *size)
{
    return read_number(input, size) < 0 ? NULL : take(input, *size);
}

static PyObject *read_text(Input *input)
{
    int64_t size;
    bytes_at start = take_sized(input, &size);
    if (start == NULL)
        return NULL;
    PyObject *text = PyUnicode_DecodeUTF8((const char *)start, size, NULL);
    if (text == NULL)
        forget_exception();
    return text;
}

static int skip_number(Input *input)
{
    while (input->at < input->end)
        if (*input->at++ < 0x80)
            return 0;
    return -1;
}

/* 1 where there are items in a block, 0 behind the last one. `size`: in bytes, where the block has it, else -1. */
static int read_block(Input *input, int64_t *items, int64_t *size)
{
    *size = -1;
    if (read_number(input, items) < 0)
        return -1;
    if (*items >= 0)
        return *items > 0;
    *items = -*items;
    return read_number(input, size) < 0 || *size < 0 ? -1 : 1;
}

static int skip_step(const Step *steps, const Step *step, Input *input);

static int skip_parts(const Step *steps, const Step *step, Input *input)
{
    for (Py_ssize_t index = 0; index < step->count; index++)
        if (skip_step(steps, steps + step->first + index, input) < 0)
            return -1;
    return 0;
}

static int skip_blocks(const Step *steps, const Step *step, Input *input)
{
    int64_t items, size;
    int more;
    while ((more = read_block(input, &items, &size)) > 0) {
        if (size >= 0) {
            if (take(input, size) == NULL)
                return -1;
            continue;
        }
        bytes_at start = input->at;
        if (items > left_of(input))
            return -1;
        while (items-- > 0)
            if (skip_parts(steps, step, input) < 0)
                return -1;
        if (input->at == start)
            return -1;
    }
    return more;
}

static int skip_step(const Step *steps, const Step *step, Input *input)
{
    int64_t size;
    switch (step->kind) {
    case SKIP:
        return take(input, step->number) == NULL ? -1 : 0;
    case SKIP_LONG:
        return skip_number(input);
    case SKIP_SIZED:
        return take_sized(input, &size) == NULL ? -1 : 0;
    case SKIP_UNION:
        if (input->at == input->end)
            return -1;
        size = *input->at++;
        if (size == 2 * step->number)
            return 0;
        return size == 2 - 2 * step->number ? skip_parts(steps, step, input) : -1;
    case SKIP_BLOCKS:
        return skip_blocks(steps, step, input);
    case SKIP_RECORD:
        return skip_parts(steps, step, input);
    default:
        return -1;
    }
}

static PyObject *read_step(const Step *steps, const Step *step, Input *input);

static PyObject *read_enum(const Step *step, Input *input)
{
    int64_t place, count = PyTuple_GET_SIZE(step->known);
    if (read_number(input, &place) < 0)
        return NULL;
    if (place < 0)
        place += count;
    return place < 0 || place >= count ? NULL : Py_NewRef(PyTuple_GET_ITEM(step->known, place));
}

static PyObject *read_union(const Step *steps, const Step *step, Input *input)
{
    if (input->at == input->end)
        return NULL;
    int place = *input->at++;
    if (place == 2 * step->number)
        Py_RETURN_NONE;
    return place == 2 - 2 * step->number ? read_step(steps, steps + step->first, input) : NULL;
}

/* An item of an array or, with its key, of a map. */
static int read_item(const Step *steps, const Step *step, Input *input, PyObject *found)
{
    PyObject *key = NULL;
    if (step->kind == MAP && (key = read_text(input)) == NULL)
        return -1;
    PyObject *value = read_step(steps, steps + step->first, input);
    int failed = -1;
    if (value != NULL)
        failed = key == NULL ? PyList_Append(found, value) : PyDict_SetItem(found, key, value);
    Py_XDECREF(value);
    Py_XDECREF(key);
    return failed;
}

static PyObject *read_blocks(const Step *steps, const Step *step, Input *input)
{
    PyObject *found = step->kind == MAP ? PyDict_New() : PyList_New(0);
    if (found == NULL)
        return NULL;
    int64_t items, size;
    int more;
    while ((more = read_block(input, &items, &size)) > 0) {
        bytes_at start = input->at;
        if (items > left_of(input))
            goto unusual;
        while (items-- > 0)
            if (read_item(steps, step, input, found) < 0)
                goto unusual;
        if (input->at == start)
            goto unusual;
    }
    if (more == 0)
        return found;
unusual:
    Py_DECREF(found);
    return NULL;
}

static PyObject *read_record(const Step *steps, const Step *step, Input *input)
{
    PyObject *found = step->shape == NULL ? PyDict_New() : PyDict_Copy(step->shape);
    if (found == NULL)
        return NULL;
    for (Py_ssize_t index = 0; index < step->count; index++) {
        const Step *part = steps + step->first + index;
        PyObject *name = PyTuple_GET_ITEM(step->known, index);
        if (name == Py_None) {
            if (skip_step(steps, part, input) < 0)
                goto unusual;
            continue;
        }
        PyObject *value = read_step(steps, part, input);
        if (value == NULL)
            goto unusual;
        int failed = PyDict_SetItem(found, name, value);
        Py_DECREF(value);
        if (failed)
            goto unusual;
    }
    return found;
unusual:
    Py_DECREF(found);
    return NULL;
}

static PyObject *read_converted(const Step *steps, const Step *step, Input *input)
{
    PyObject *value = read_step(steps, steps + step->first, input), *known = step->known, *found = NULL;
    if (value == NULL)
        return NULL;
    if (step->kind == FLOAT_OF) {
        double number = PyLong_Check(value) ? PyLong_AsDouble(value) : -1;
        if (PyLong_Check(value) && !PyErr_Occurred())
            found = PyFloat_FromDouble(number);
    } else {
        PyObject *arguments[] = {value, PyTuple_GET_ITEM(known, 1), PyTuple_GET_ITEM(known, 2)};
        found = PyObject_Vectorcall(PyTuple_GET_ITEM(known, 0), arguments, 3, NULL);
    }
    Py_DECREF(value);
    if (found == NULL && PyErr_Occurred())
        forget_exception();
    return found;
}

static PyObject *read_real(const Step *step, Input *input)
{
    int size = step->kind == FLOAT ? 4 : 8;
    const char *start = (const char *)take(input, size);
    if (start == NULL)
        return NULL;
    double number = size == 4 ? PyFloat_Unpack4(start, 1) : PyFloat_Unpack8(start, 1);
    if (number == -1 && PyErr_Occurred()) {
        forget_exception();
        return NULL;
    }
    return PyFloat_FromDouble(number);
}

static PyObject *read_step(const Step *steps, const Step *step, Input *input)
{
    int64_t number = step->number;
    bytes_at start;
    switch (step->kind) {
    case NONE:
        Py_RETURN_NONE;
    case BOOLEAN:
        start = take(input, 1);
        return start == NULL ? NULL : PyBool_FromLong(*start);
    case LONG:
        return read_number(input, &number) < 0 ? NULL : PyLong_FromLongLong(number);
    case FLOAT:
    case DOUBLE:
        return read_real(step, input);
    case BYTES:
        start = take_sized(input, &number);
        return start == NULL ? NULL : PyBytes_FromStringAndSize((const char *)start, number);
    case STRING:
        return read_text(input);
    case FIXED:
        start = take(input, number);
        return start == NULL ? NULL : PyBytes_FromStringAndSize((const char *)start, number);
    case ENUM:
        return read_enum(step, input);
    case UNION:
        return read_union(steps, step, input);
    case ARRAY:
    case MAP:
        return read_blocks(steps, step, input);
    case RECORD:
        return read_record(steps, step, input);
    case CONSTANT:
        return Py_NewRef(PyTuple_GET_ITEM(step->known, 0));
    case CONVERT:
    case FLOAT_OF:
        return read_converted(steps, step, input);
    default:
        return NULL;
    }
}

static PyObject *read_value(Coder *self, PyObject *data, Py_ssize_t at)
{
    if (PyBytes_CheckExact(data) && at >= 0 && at <= PyBytes_GET_SIZE(data)) {
        bytes_at start = (bytes_at)PyBytes_AS_STRING(data);
        Input input = {start + at, start + PyBytes_GET_SIZE(data)};
        PyObject *found = read_step(self->steps, self->steps, &input);
        if (found != NULL || PyErr_Occurred())
            return found;
    }
    return PyObject_CallFunction(self->otherwise, "On", data, at);
}
