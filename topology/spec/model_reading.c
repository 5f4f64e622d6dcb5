/* Makes values of types out of what a JSON parser returns, in C: an optional extra (see topology/spec/model_reading.py).

   1. Nothing here has a behaviour of its own. What is made is what pydantic makes of the same bytes; whatever is unusual or does
      not fit is left to pydantic: `otherwise` is called with the same bytes then.
   2. What the parser returned belongs to this call alone, so its dicts and lists are changed in place.
   3. Classes have no `__new__` of their own, and attributes are set past `__setattr__`, as pydantic does: no code of the program
      runs here. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <structmember.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define DEPTH_MAX 150 /* pydantic's parser refuses 200 */
#define EXACT_MAX ((double)(1LL << 53))

typedef enum {
    STR = 's',
    INT = 'i',
    FLOAT = 'f',
    BOOL = 'b',
    NONE = 'n',
    NULLABLE = '?',
    LIST = 'l',
    TYPED_DICT = 't',
    DATACLASS = 'd',
    SLOTS = 'o',
    MODEL = 'm',
} Kind;

typedef struct Node Node;

/* `seen`: the object that was this name in the last JSON; a parser returns the same one for the same name, mostly. */
typedef struct {
    PyObject *alias, *name, *seen, *default_value;
    int may_be_absent;
    Node *value;
} Field;

/* `given`: the names of all fields. `slots`: of a model, where its objects hold what is known of their fields. */
struct Node {
    Kind kind;
    int in_place;
    Py_ssize_t slots[3];
    PyObject *cls, *given;
    Node *inner;
    Py_ssize_t field_count;
    Field *fields;
};

typedef struct {
    PyObject_HEAD
    PyObject *loads, *otherwise;
    Node *plan;
} Reader;

enum { FIELDS_SET, EXTRA, PRIVATE };
static const char *const MODEL_SLOTS[] = {"__pydantic_fields_set__", "__pydantic_extra__", "__pydantic_private__"};

static PyObject *empty;

static PyObject *fit(Node *node, PyObject *value);

/* ------------------------------------------------------------------------------------------------- plans */

static void drop(Node *node)
{
    if (node == NULL)
        return;
    for (Py_ssize_t i = 0; i < node->field_count; i++) {
        Field *field = &node->fields[i];
        Py_XDECREF(field->alias);
        Py_XDECREF(field->name);
        Py_XDECREF(field->seen);
        Py_XDECREF(field->default_value);
        drop(field->value);
    }
    PyMem_Free(node->fields);
    Py_XDECREF(node->cls);
    Py_XDECREF(node->given);
    drop(node->inner);
    PyMem_Free(node);
}

static Node *read_plan(PyObject *plan);

static int read_field(Field *field, PyObject *given)
{
    PyObject *alias, *name, *defaults, *value;
    if (!PyArg_ParseTuple(given, "UUpO!O!", &alias, &name, &field->may_be_absent, &PyTuple_Type, &defaults, &PyTuple_Type, &value))
        return -1;
    field->alias = Py_NewRef(alias);
    field->name = Py_NewRef(name);
    field->seen = Py_NewRef(alias);
    if (PyTuple_GET_SIZE(defaults) == 1)
        field->default_value = Py_NewRef(PyTuple_GET_ITEM(defaults, 0));
    field->value = read_plan(value);
    return field->value == NULL ? -1 : 0;
}

static int read_fields(Node *node, PyObject *cls, PyObject *fields)
{
    Py_ssize_t count = PyTuple_GET_SIZE(fields);
    node->cls = Py_NewRef(cls);
    node->in_place = 1;
    node->given = PySet_New(NULL);
    node->fields = PyMem_Calloc((size_t)(count ? count : 1), sizeof(Field));
    if (node->given == NULL)
        return -1;
    if (node->fields == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        Field *field = &node->fields[i];
        node->field_count = i + 1;
        if (read_field(field, PyTuple_GET_ITEM(fields, i)) < 0 || PySet_Add(node->given, field->name) < 0)
            return -1;
        int same = PyUnicode_Compare(field->alias, field->name) == 0;
        node->in_place = node->in_place && same;
    }
    return 0;
}

/* Where objects of the class have the slots of a model. */
static int find_slots(Node *node)
{
    for (int i = FIELDS_SET; i <= PRIVATE; i++) {
        PyObject *slot = PyObject_GetAttrString(node->cls, MODEL_SLOTS[i]);
        if (slot == NULL) {
            PyErr_Clear(); /* a later version of pydantic may have others */
            return -1;
        }
        PyMemberDef *member = Py_IS_TYPE(slot, &PyMemberDescr_Type) ? ((PyMemberDescrObject *)slot)->d_member : NULL;
        if (member == NULL || member->type != T_OBJECT_EX || member->flags != 0 || !PyType_Check(node->cls)
            || !PyType_IsSubtype((PyTypeObject *)node->cls, PyDescr_TYPE(slot)))
            member = NULL;
        node->slots[i] = member == NULL ? 0 : member->offset;
        Py_DECREF(slot);
        if (member == NULL)
            return -1;
    }
    return 0;
}

/* A node of (kind,), (kind, inner) or (kind, cls, fields). */
static Node *read_plan(PyObject *plan)
{
    PyObject *kind, *second = NULL, *third = NULL;
    if (!PyArg_ParseTuple(plan, "U|OO!", &kind, &second, &PyTuple_Type, &third))
        return NULL;
    Node *node = PyMem_Calloc(1, sizeof(Node));
    if (node == NULL) {
        PyErr_NoMemory();
        return NULL;
    }
    node->kind = (Kind)PyUnicode_ReadChar(kind, 0);
    int failed = 0;
    if (third != NULL)
        failed = read_fields(node, second, third) < 0;
    else if (second != NULL && PyTuple_Check(second))
        failed = (node->inner = read_plan(second)) == NULL;
    else if (second != NULL)
        failed = 1;
    int has_fields = strchr("tdom", (int)node->kind) != NULL, has_inner = strchr("?l", (int)node->kind) != NULL;
    if (!failed && (has_fields != (third != NULL) || has_inner != (node->inner != NULL)))
        failed = 1;
    if (!failed && node->kind == MODEL)
        failed = find_slots(node) < 0;
    if (failed) {
        if (!PyErr_Occurred())
            PyErr_SetString(PyExc_ValueError, "no such plan");
        drop(node);
        return NULL;
    }
    return node;
}

/* ------------------------------------------------------------------------------------------------- values */

/* All functions below return NULL, with or without an exception, where the value is left to pydantic. */

static PyObject *fit_float(PyObject *value)
{
    if (PyFloat_CheckExact(value)) {
        double number = PyFloat_AS_DOUBLE(value);
        /* A large one may have been an integer without a dot, which pydantic rounds by itself. */
        return fabs(number) < EXACT_MAX ? Py_NewRef(value) : NULL;
    }
    if (!PyLong_CheckExact(value))
        return NULL;
    double number = PyLong_AsDouble(value);
    return fabs(number) < EXACT_MAX ? PyFloat_FromDouble(number) : NULL;
}

static PyObject *fit_list(Node *node, PyObject *value)
{
    if (!PyList_CheckExact(value))
        return NULL;
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(value); i++) {
        PyObject *made = fit(node->inner, PyList_GET_ITEM(value, i));
        if (made == NULL || PyList_SetItem(value, i, made) < 0)
            return NULL;
    }
    return Py_NewRef(value);
}

static inline int is_name(Field *field, PyObject *key)
{
    if (key == field->seen)
        return 1;
    if (PyUnicode_Compare(key, field->alias) != 0)
        return 0;
    Py_SETREF(field->seen, Py_NewRef(key));
    return 1;
}

/* Whether a dict has all fields in their order, and nothing else. */
static int is_whole(Node *node, PyObject *found)
{
    if (!node->in_place || PyDict_GET_SIZE(found) != node->field_count)
        return 0;
    PyObject *key, *value;
    Py_ssize_t at = 0;
    for (Field *field = node->fields; PyDict_Next(found, &at, &key, &value); field++)
        if (!is_name(field, key))
            return 0;
    return 1;
}

static PyObject *fitted_in_place(Node *node, PyObject *found)
{
    PyObject *key, *value;
    Py_ssize_t at = 0;
    for (Field *field = node->fields; PyDict_Next(found, &at, &key, &value); field++) {
        PyObject *made = fit(field->value, value);
        if (made == NULL)
            return NULL;
        /* The keys stay as they are, so the iteration goes on. */
        int failed = made != value && PyDict_SetItem(found, key, made) < 0;
        Py_DECREF(made);
        if (failed)
            return NULL;
    }
    return Py_NewRef(found);
}

/* A dict of the fields in their order, and in `given` the names of those that were there. */
static int put_fields(Node *node, PyObject *found, PyObject *result, PyObject *given)
{
    for (Py_ssize_t i = 0; i < node->field_count; i++) {
        Field *field = &node->fields[i];
        PyObject *value = PyDict_GetItemWithError(found, field->alias), *made;
        if (value != NULL) {
            made = fit(field->value, value);
            if (made == NULL || (given != NULL && PySet_Add(given, field->name) < 0)) {
                Py_XDECREF(made);
                return -1;
            }
        } else if (field->default_value != NULL) {
            made = Py_NewRef(field->default_value);
        } else if (field->may_be_absent) {
            continue;
        } else {
            return -1;
        }
        int failed = PyDict_SetItem(result, field->name, made);
        Py_DECREF(made);
        if (failed < 0)
            return -1;
    }
    return 0;
}

static void set_model(Node *node, PyObject *made, PyObject *given)
{
    PyObject *values[] = {given, Py_None, Py_None};
    for (int i = FIELDS_SET; i <= PRIVATE; i++)
        /* The object is new, so there is nothing in these. */
        *(PyObject **)((char *)made + node->slots[i]) = Py_NewRef(values[i]);
}

static int set_slots(PyObject *made, PyObject *attributes)
{
    PyObject *name, *value;
    Py_ssize_t at = 0;
    while (PyDict_Next(attributes, &at, &name, &value))
        if (PyObject_GenericSetAttr(made, name, value) < 0)
            return -1;
    return 0;
}

/* An object of a class. `attributes` is its own from now on. */
static PyObject *object_of(Node *node, PyObject *attributes, PyObject *given)
{
    PyTypeObject *type = (PyTypeObject *)node->cls;
    PyObject *made = type->tp_new(type, empty, NULL);
    if (made == NULL)
        return NULL;
    int failed = node->kind == SLOTS ? set_slots(made, attributes) : PyObject_GenericSetDict(made, attributes, NULL);
    if (failed < 0)
        Py_CLEAR(made);
    else if (node->kind == MODEL)
        set_model(node, made, given);
    return made;
}

static PyObject *fit_fields(Node *node, PyObject *value)
{
    if (!PyDict_CheckExact(value))
        return NULL;
    PyObject *attributes = NULL, *given = NULL, *made = NULL;
    int whole = is_whole(node, value);
    if (node->kind == MODEL && (given = PySet_New(whole ? node->given : NULL)) == NULL)
        return NULL;
    if (whole) {
        attributes = fitted_in_place(node, value);
    } else if ((attributes = PyDict_New()) != NULL && put_fields(node, value, attributes, given) < 0) {
        Py_CLEAR(attributes);
    }
    if (attributes != NULL)
        made = node->kind == TYPED_DICT ? Py_NewRef(attributes) : object_of(node, attributes, given);
    Py_XDECREF(given);
    Py_XDECREF(attributes);
    return made;
}

static PyObject *fit(Node *node, PyObject *value)
{
    switch (node->kind) {
    case STR:
        return PyUnicode_CheckExact(value) ? Py_NewRef(value) : NULL;
    case INT:
        return PyLong_CheckExact(value) ? Py_NewRef(value) : NULL;
    case FLOAT:
        return fit_float(value);
    case BOOL:
        return PyBool_Check(value) ? Py_NewRef(value) : NULL;
    case NONE:
        return value == Py_None ? Py_NewRef(value) : NULL;
    case NULLABLE:
        return value == Py_None ? Py_NewRef(value) : fit(node->inner, value);
    case LIST:
        return fit_list(node, value);
    default:
        return fit_fields(node, value);
    }
}

/* ------------------------------------------------------------------------------------------------- reading */

/* How many brackets are opened: at least as many as are nested. */
static Py_ssize_t opened(const char *data, Py_ssize_t size)
{
    Py_ssize_t count = 0;
    for (Py_ssize_t i = 0; i < size; i++)
        count += (data[i] == '[') | (data[i] == '{');
    return count;
}

static int is_shallow(PyObject *value, int left)
{
    if (PyList_CheckExact(value)) {
        for (Py_ssize_t i = 0; i < PyList_GET_SIZE(value); i++)
            if (left == 0 || !is_shallow(PyList_GET_ITEM(value, i), left - 1))
                return 0;
    } else if (PyDict_CheckExact(value)) {
        PyObject *key, *each;
        Py_ssize_t at = 0;
        while (PyDict_Next(value, &at, &key, &each))
            if (left == 0 || !is_shallow(each, left - 1))
                return 0;
    }
    return 1;
}

static PyObject *Reader_read(Reader *self, PyObject *data)
{
    if (PyBytes_CheckExact(data)) {
        PyObject *parsed = PyObject_CallOneArg(self->loads, data);
        if (parsed != NULL) {
            int deep = opened(PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data)) > DEPTH_MAX && !is_shallow(parsed, DEPTH_MAX);
            PyObject *made = deep ? NULL : fit(self->plan, parsed);
            Py_DECREF(parsed);
            if (made != NULL)
                return made;
        }
        PyErr_Clear();
    }
    return PyObject_CallOneArg(self->otherwise, data);
}

static PyObject *Reader_new(PyTypeObject *type, PyObject *arguments, PyObject *named)
{
    PyObject *loads, *plan, *otherwise;
    if (!PyArg_ParseTuple(arguments, "OO!O", &loads, &PyTuple_Type, &plan, &otherwise))
        return NULL;
    Node *node = read_plan(plan);
    if (node == NULL)
        return NULL;
    Reader *self = (Reader *)type->tp_alloc(type, 0);
    if (self == NULL) {
        drop(node);
        return NULL;
    }
    self->plan = node;
    self->loads = Py_NewRef(loads);
    self->otherwise = Py_NewRef(otherwise);
    return (PyObject *)self;
}

static void Reader_dealloc(Reader *self)
{
    PyTypeObject *type = Py_TYPE(self);
    drop(self->plan);
    Py_XDECREF(self->loads);
    Py_XDECREF(self->otherwise);
    type->tp_free((PyObject *)self);
    Py_DECREF(type);
}

PyDoc_STRVAR(read_doc, "read(data)\n--\n\nThe value that the bytes are.");

static PyMethodDef reader_methods[] = {
    {"read", (PyCFunction)Reader_read, METH_O, read_doc},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot reader_slots[] = {
    {Py_tp_doc, "Reads JSON as values of a type."},
    {Py_tp_new, Reader_new},
    {Py_tp_dealloc, Reader_dealloc},
    {Py_tp_methods, reader_methods},
    {0, NULL},
};

static PyType_Spec reader_spec = {"_streamsrt_models.Reader", sizeof(Reader), 0, Py_TPFLAGS_DEFAULT, reader_slots};

/* ------------------------------------------------------------------------------------------------- the module */

static int fill(PyObject *module)
{
    const char *pure = getenv("STREAMSRT_PURE");
    if (pure != NULL && strcmp(pure, "1") == 0) {
        PyErr_SetString(PyExc_ImportError, "STREAMSRT_PURE is 1");
        return -1;
    }
    if (empty == NULL && (empty = PyTuple_New(0)) == NULL)
        return -1;
    PyObject *type = PyType_FromSpec(&reader_spec);
    if (type == NULL)
        return -1;
    int failed = PyModule_AddObjectRef(module, "Reader", type);
    Py_DECREF(type);
    return failed;
}

static PyModuleDef_Slot module_slots[] = {{Py_mod_exec, fill}, {0, NULL}};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_streamsrt_models", "The loops of topology.spec.model_reading in C.", 0, NULL, module_slots,
};

PyMODINIT_FUNC PyInit__streamsrt_models(void)
{
    return PyModuleDef_Init(&definition);
}
