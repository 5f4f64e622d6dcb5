/* Steps: what a schema is made into, and the readers and writers that consist of them. A part of kernels.c. */

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
