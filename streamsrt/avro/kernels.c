/* Values of Avro, read and written in C: an optional extra (see streamsrt/avro/kernels.py).

   1. Nothing here has a behaviour of its own. A value that the generated code would read or write is read and written in
      the same way; any other one, and whatever is wrong, is unusual: the function `otherwise`, which is fastavro, takes it
      from the start.
   2. Bytes come from the network. No byte is read before its position was compared with the end of the value, and there are
      never more items than bytes: those that take no bytes are unusual.
   3. The functions of logical types run Python code, as do keys of dicts that are no plain text: what a value consists of is
      held while it is looked at, and no size is trusted behind them.
   4. Functions that find something unusual return NULL or -1 without an exception; with one where memory is missing, or
      where Python is interrupted. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef const unsigned char *bytes_at;

#define HEAD_BYTES 5
#define STEPS_MAX 10000
#define DEPTH_MAX 100
#define NUMBER_BITS_MAX 63
#define SMALL_DICT 5
#define FIRST_ROOM 512

/* ------------------------------------------------------------------------------------------------- steps */

enum kind {
    NONE, BOOLEAN, INT, LONG, FLOAT, DOUBLE, BYTES, STRING, FIXED, ENUM, PLACE, UNION, ARRAY, MAP, RECORD, CONSTANT,
    CONVERT, PREPARE, FLOAT_OF, SKIP, SKIP_LONG, SKIP_SIZED, SKIP_UNION, SKIP_BLOCKS, SKIP_RECORD, KINDS
};

#define ANY (-1)

/* The name of each kind, and how many parts it has and how many objects are known. */
static const struct {
    const char *name;
    int parts, known;
} kinds[KINDS] = {
    [NONE] = {"null", 0, 0},
    [BOOLEAN] = {"boolean", 0, 0},
    [INT] = {"int", 0, 0},
    [LONG] = {"long", 0, 0},
    [FLOAT] = {"float", 0, 0},
    [DOUBLE] = {"double", 0, 0},
    [BYTES] = {"bytes", 0, 0},
    [STRING] = {"string", 0, 0},
    [FIXED] = {"fixed", 0, 0},
    [ENUM] = {"enum", 0, ANY},
    [PLACE] = {"place", 0, 1},
    [UNION] = {"union", 1, 0},
    [ARRAY] = {"array", 1, 0},
    [MAP] = {"map", 1, 0},
    [RECORD] = {"record", ANY, ANY},
    [CONSTANT] = {"constant", 0, 1},
    [CONVERT] = {"convert", 1, 3},
    [PREPARE] = {"prepare", 1, 2},
    [FLOAT_OF] = {"float_of", 1, 0},
    [SKIP] = {"skip", 0, 0},
    [SKIP_LONG] = {"skip_long", 0, 0},
    [SKIP_SIZED] = {"skip_sized", 0, 0},
    [SKIP_UNION] = {"skip_union", 1, 0},
    [SKIP_BLOCKS] = {"skip_blocks", ANY, 0},
    [SKIP_RECORD] = {"skip_record", ANY, 0},
};

/* `first`: its parts are `count` steps from there on. `known`: a tuple. `shape`: the dict that a record of many fields
   begins as, of which a copy is made in one go. */
typedef struct {
    enum kind kind;
    Py_ssize_t first, count, number;
    PyObject *known, *shape;
} Step;

/* A reader or a writer of values. */
typedef struct {
    PyObject_HEAD
    Step *steps;
    Py_ssize_t count, room;
    PyObject *otherwise;
} Coder;

static int reserve_steps(Coder *self, Py_ssize_t count)
{
    if (count > STEPS_MAX - self->count) {
        PyErr_SetString(PyExc_ValueError, "too many steps");
        return -1;
    }
    if (self->count + count > self->room) {
        Py_ssize_t room = 2 * (self->count + count);
        Step *steps = PyMem_Realloc(self->steps, room * sizeof(Step));
        if (steps == NULL) {
            PyErr_NoMemory();
            return -1;
        }
        self->steps = steps;
        self->room = room;
    }
    memset(self->steps + self->count, 0, count * sizeof(Step));
    self->count += count;
    return 0;
}

static enum kind kind_named(PyObject *name)
{
    int kind = 0;
    while (kind < KINDS && PyUnicode_CompareWithASCIIString(name, kinds[kind].name) != 0)
        kind++;
    return kind;
}

/* Whether a step's number and the objects that it knows are what is taken for granted below. */
static int is_known_well(enum kind kind, Py_ssize_t parts, Py_ssize_t number, PyObject *known)
{
    if (number < 0 || ((kind == UNION || kind == SKIP_UNION) && number > 1))
        return 0;
    if (kind == PLACE)
        return PyDict_CheckExact(PyTuple_GET_ITEM(known, 0));
    if (kind != RECORD)
        return 1;
    if (PyTuple_GET_SIZE(known) != parts)
        return 0;
    for (Py_ssize_t index = 0; index < parts; index++) {
        PyObject *name = PyTuple_GET_ITEM(known, index);
        if (name != Py_None && !PyUnicode_CheckExact(name))
            return 0;
    }
    return 1;
}

/* The dict of a record of more than a few fields, which would grow while it is filled; NULL where it needs none. */
static PyObject *shape_of(PyObject *names)
{
    PyObject *shape = PyDict_New();
    for (Py_ssize_t index = 0; shape != NULL && index < PyTuple_GET_SIZE(names); index++) {
        PyObject *name = PyTuple_GET_ITEM(names, index);
        if (name != Py_None && PyDict_SetItem(shape, name, Py_None) < 0)
            Py_CLEAR(shape);
    }
    if (shape != NULL && PyDict_GET_SIZE(shape) <= SMALL_DICT)
        Py_CLEAR(shape);
    return shape;
}

/* Puts a step, which is a tuple of its kind, parts, number and what is known, in a place that was reserved. */
static int put_step(Coder *self, Py_ssize_t at, PyObject *tree, int depth)
{
    PyObject *name, *parts, *known;
    Py_ssize_t number;
    if (!PyTuple_Check(tree) ||
        !PyArg_ParseTuple(tree, "UO!nO!", &name, &PyTuple_Type, &parts, &number, &PyTuple_Type, &known)) {
        if (!PyErr_Occurred())
            PyErr_SetString(PyExc_TypeError, "a step is a tuple");
        return -1;
    }
    Py_ssize_t count = PyTuple_GET_SIZE(parts);
    enum kind kind = kind_named(name);
    if (kind == KINDS || depth > DEPTH_MAX || (kinds[kind].parts != ANY && kinds[kind].parts != count) ||
        (kinds[kind].known != ANY && kinds[kind].known != PyTuple_GET_SIZE(known)) ||
        !is_known_well(kind, count, number, known)) {
        PyErr_Format(PyExc_ValueError, "no step is %R", tree);
        return -1;
    }
    Py_ssize_t first = self->count;
    if (reserve_steps(self, count) < 0)
        return -1;
    self->steps[at] = (Step){kind, first, count, number, Py_NewRef(known), NULL};
    if (kind == RECORD) {
        self->steps[at].shape = shape_of(known);
        if (PyErr_Occurred())
            return -1;
    }
    for (Py_ssize_t index = 0; index < count; index++)
        if (put_step(self, first + index, PyTuple_GET_ITEM(parts, index), depth + 1) < 0)
            return -1;
    return 0;
}

/* What came up while Python code ran is unusual; what is no fault of the value remains an exception. */
static void forget_exception(void)
{
    if (PyErr_ExceptionMatches(PyExc_Exception) && !PyErr_ExceptionMatches(PyExc_MemoryError))
        PyErr_Clear();
}

/* ------------------------------------------------------------------------------------------------- reading */

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

/* ------------------------------------------------------------------------------------------------- writing */

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

/* ------------------------------------------------------------------------------------------------- readers and writers */

static PyObject *Coder_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    PyObject *tree, *otherwise;
    static char *names[] = {"step", "otherwise", NULL};
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OO", names, &tree, &otherwise))
        return NULL;
    Coder *self = (Coder *)type->tp_alloc(type, 0);
    if (self == NULL)
        return NULL;
    self->otherwise = Py_NewRef(otherwise);
    if (reserve_steps(self, 1) < 0 || put_step(self, 0, tree, 0) < 0) {
        Py_DECREF(self);
        return NULL;
    }
    return (PyObject *)self;
}

static int Coder_traverse(Coder *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(self->otherwise);
    for (Py_ssize_t index = 0; index < self->count; index++) {
        Py_VISIT(self->steps[index].known);
        Py_VISIT(self->steps[index].shape);
    }
    return 0;
}

static void Coder_dealloc(Coder *self)
{
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    for (Py_ssize_t index = 0; index < self->count; index++) {
        Py_XDECREF(self->steps[index].known);
        Py_XDECREF(self->steps[index].shape);
    }
    PyMem_Free(self->steps);
    Py_XDECREF(self->otherwise);
    type->tp_free((PyObject *)self);
    Py_DECREF(type);
}

static int has_keywords(PyObject *kwargs)
{
    if (kwargs == NULL || PyDict_GET_SIZE(kwargs) == 0)
        return 0;
    PyErr_SetString(PyExc_TypeError, "there are no arguments by name");
    return 1;
}

static PyObject *Reader_call(Coder *self, PyObject *args, PyObject *kwargs)
{
    PyObject *data;
    Py_ssize_t at;
    if (has_keywords(kwargs) || !PyArg_ParseTuple(args, "On", &data, &at))
        return NULL;
    return read_value(self, data, at);
}

static PyObject *Writer_call(Coder *self, PyObject *args, PyObject *kwargs)
{
    PyObject *value, *head;
    if (has_keywords(kwargs) || !PyArg_ParseTuple(args, "OO", &value, &head))
        return NULL;
    return write_value(self, value, head);
}

#define CODER_SLOTS(doc, call) \
    { \
        {Py_tp_doc, doc}, {Py_tp_new, Coder_new}, {Py_tp_traverse, Coder_traverse}, {Py_tp_dealloc, Coder_dealloc}, \
            {Py_tp_call, call}, {0, NULL}, \
    }
#define FLAGS (Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC)

static PyType_Slot reader_slots[] =
    CODER_SLOTS("Reader(step, otherwise): reads a value in bytes, from a position on.", Reader_call);
static PyType_Slot writer_slots[] =
    CODER_SLOTS("Writer(step, otherwise): returns the bytes of a value behind others.", Writer_call);
static PyType_Spec reader_spec = {"_streamsrt_avro.Reader", sizeof(Coder), 0, FLAGS, reader_slots};
static PyType_Spec writer_spec = {"_streamsrt_avro.Writer", sizeof(Coder), 0, FLAGS, writer_slots};

/* ------------------------------------------------------------------------------------------------- messages */

typedef struct {
    PyTypeObject *reader, *writer;
} State;

static struct PyModuleDef definition;

/* What reads messages, or writes them. `type`: that of readers or writers in C. `find`: finds a reader or a writer;
   `otherwise`: reads what is no message in bytes. `coders`: readers by what is before their values. `last`: the reader or
   writer that was used last, and `head` what is before its values. */
typedef struct {
    PyObject_HEAD
    PyTypeObject *type;
    PyObject *find, *otherwise, *coders, *last, *head;
} Messages;

static PyObject *Deserializer_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    PyObject *find, *otherwise, *module = PyType_GetModuleByDef(type, &definition);
    static char *names[] = {"find", "otherwise", NULL};
    if (module == NULL || !PyArg_ParseTupleAndKeywords(args, kwargs, "OO", names, &find, &otherwise))
        return NULL;
    Messages *self = (Messages *)type->tp_alloc(type, 0);
    if (self == NULL)
        return NULL;
    self->type = (PyTypeObject *)Py_NewRef(((State *)PyModule_GetState(module))->reader);
    self->find = Py_NewRef(find);
    self->otherwise = Py_NewRef(otherwise);
    self->coders = PyDict_New();
    if (self->coders == NULL)
        Py_CLEAR(self);
    return (PyObject *)self;
}

static PyObject *Serializer_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    PyObject *find, *module = PyType_GetModuleByDef(type, &definition);
    static char *names[] = {"find", NULL};
    if (module == NULL || !PyArg_ParseTupleAndKeywords(args, kwargs, "O", names, &find))
        return NULL;
    Messages *self = (Messages *)type->tp_alloc(type, 0);
    if (self == NULL)
        return NULL;
    self->type = (PyTypeObject *)Py_NewRef(((State *)PyModule_GetState(module))->writer);
    self->find = Py_NewRef(find);
    return (PyObject *)self;
}

static int Messages_traverse(Messages *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(self->type);
    Py_VISIT(self->find);
    Py_VISIT(self->otherwise);
    Py_VISIT(self->coders);
    Py_VISIT(self->last);
    return 0;
}

static void Messages_dealloc(Messages *self)
{
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    Py_XDECREF(self->type);
    Py_XDECREF(self->find);
    Py_XDECREF(self->otherwise);
    Py_XDECREF(self->coders);
    Py_XDECREF(self->last);
    Py_XDECREF(self->head);
    type->tp_free((PyObject *)self);
    Py_DECREF(type);
}

/* Both change before the former ones are let go, which may run code. */
static void remember(Messages *self, PyObject *coder, PyObject *head)
{
    PyObject *last = self->last, *last_head = self->head;
    self->last = Py_NewRef(coder);
    self->head = Py_NewRef(head);
    Py_XDECREF(last);
    Py_XDECREF(last_head);
}

/* The reader of a message, held: `find` tells those of new heads. */
static PyObject *reader_of(Messages *self, PyObject *data)
{
    const char *start = PyBytes_AS_STRING(data);
    if (self->head != NULL && memcmp(PyBytes_AS_STRING(self->head), start, HEAD_BYTES) == 0)
        return Py_NewRef(self->last);
    PyObject *head = PyBytes_FromStringAndSize(start, HEAD_BYTES);
    if (head == NULL)
        return NULL;
    PyObject *reader = Py_XNewRef(PyDict_GetItemWithError(self->coders, head));
    if (reader == NULL && !PyErr_Occurred()) {
        reader = PyObject_CallOneArg(self->find, data);
        if (reader != NULL && PyDict_SetItem(self->coders, head, reader) < 0)
            Py_CLEAR(reader);
    }
    if (reader != NULL)
        remember(self, reader, head);
    Py_DECREF(head);
    return reader;
}

PyDoc_STRVAR(deserialize_doc, "deserialize(data)\n--\n\nThe value of a message.");

static PyObject *Deserializer_deserialize(Messages *self, PyObject *data)
{
    if (!PyBytes_CheckExact(data) || PyBytes_GET_SIZE(data) < HEAD_BYTES)
        return PyObject_CallOneArg(self->otherwise, data);
    PyObject *reader = reader_of(self, data), *found;
    if (reader == NULL)
        return NULL;
    if (Py_IS_TYPE(reader, self->type))
        found = read_value((Coder *)reader, data, HEAD_BYTES);
    else
        found = PyObject_CallFunction(reader, "Oi", data, HEAD_BYTES);
    Py_DECREF(reader);
    return found;
}

/* Asks `find` for the writer, and for what is before its values. */
static int find_writer(Messages *self)
{
    PyObject *found = PyObject_CallNoArgs(self->find);
    if (found == NULL)
        return -1;
    if (!PyTuple_CheckExact(found) || PyTuple_GET_SIZE(found) != 2) {
        PyErr_SetString(PyExc_TypeError, "a writer and its head are a tuple");
        Py_DECREF(found);
        return -1;
    }
    remember(self, PyTuple_GET_ITEM(found, 0), PyTuple_GET_ITEM(found, 1));
    Py_DECREF(found);
    return 0;
}

PyDoc_STRVAR(serialize_doc, "serialize(value)\n--\n\nThe message of a value.");

static PyObject *Serializer_serialize(Messages *self, PyObject *value)
{
    if (self->last == NULL && find_writer(self) < 0)
        return NULL;
    PyObject *writer = Py_NewRef(self->last), *head = Py_NewRef(self->head), *message;
    if (Py_IS_TYPE(writer, self->type))
        message = write_value((Coder *)writer, value, head);
    else
        message = PyObject_CallFunctionObjArgs(writer, value, head, NULL);
    Py_DECREF(head);
    Py_DECREF(writer);
    return message;
}

static PyMethodDef deserializer_methods[] = {
    {"deserialize", (PyCFunction)Deserializer_deserialize, METH_O, deserialize_doc},
    {NULL, NULL, 0, NULL},
};

static PyMethodDef serializer_methods[] = {
    {"serialize", (PyCFunction)Serializer_serialize, METH_O, serialize_doc},
    {NULL, NULL, 0, NULL},
};

#define MESSAGES_SLOTS(doc, new, methods) \
    { \
        {Py_tp_doc, doc}, {Py_tp_new, new}, {Py_tp_traverse, Messages_traverse}, {Py_tp_dealloc, Messages_dealloc}, \
            {Py_tp_methods, methods}, {0, NULL}, \
    }

static PyType_Slot deserializer_slots[] =
    MESSAGES_SLOTS("Deserializer(find, otherwise): reads messages.", Deserializer_new, deserializer_methods);
static PyType_Slot serializer_slots[] =
    MESSAGES_SLOTS("Serializer(find): writes messages.", Serializer_new, serializer_methods);
static PyType_Spec deserializer_spec = {"_streamsrt_avro.Deserializer", sizeof(Messages), 0, FLAGS, deserializer_slots};
static PyType_Spec serializer_spec = {"_streamsrt_avro.Serializer", sizeof(Messages), 0, FLAGS, serializer_slots};

/* ------------------------------------------------------------------------------------------------- the module */

/* Adds a type; the module holds it. */
static PyTypeObject *add_type(PyObject *module, PyType_Spec *spec)
{
    PyTypeObject *type = (PyTypeObject *)PyType_FromModuleAndSpec(module, spec, NULL);
    if (type != NULL && PyModule_AddType(module, type) < 0)
        Py_CLEAR(type);
    return type;
}

static int fill(PyObject *module)
{
    const char *pure = getenv("STREAMSRT_PURE");
    if (pure != NULL && strcmp(pure, "1") == 0) {
        PyErr_SetString(PyExc_ImportError, "STREAMSRT_PURE is 1");
        return -1;
    }
    State *state = PyModule_GetState(module);
    state->reader = add_type(module, &reader_spec);
    state->writer = add_type(module, &writer_spec);
    PyTypeObject *deserializer = add_type(module, &deserializer_spec), *serializer = add_type(module, &serializer_spec);
    int failed = state->reader == NULL || state->writer == NULL || deserializer == NULL || serializer == NULL;
    Py_XDECREF(deserializer);
    Py_XDECREF(serializer);
    return failed ? -1 : 0;
}

static int traverse(PyObject *module, visitproc visit, void *arg)
{
    State *state = PyModule_GetState(module);
    Py_VISIT(state->reader);
    Py_VISIT(state->writer);
    return 0;
}

static int clear(PyObject *module)
{
    State *state = PyModule_GetState(module);
    Py_CLEAR(state->reader);
    Py_CLEAR(state->writer);
    return 0;
}

static void let_go(void *module)
{
    clear(module);
}

static PyModuleDef_Slot module_slots[] = {{Py_mod_exec, fill}, {0, NULL}};

static struct PyModuleDef definition = {
    .m_base = PyModuleDef_HEAD_INIT,
    .m_name = "_streamsrt_avro",
    .m_doc = "The loops of streamsrt.avro.kernels in C.",
    .m_size = sizeof(State),
    .m_slots = module_slots,
    .m_traverse = traverse,
    .m_clear = clear,
    .m_free = let_go,
};

PyMODINIT_FUNC PyInit__streamsrt_avro(void)
{
    return PyModuleDef_Init(&definition);
}
