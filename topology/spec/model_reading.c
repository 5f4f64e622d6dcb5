/* Reads JSON as plain values and as values of types, in C: an optional extra (see topology/spec/model_reading.py).

   1. Nothing here has a behaviour of its own. What is made is what orjson, or pydantic for types, makes of the same bytes;
      whatever is unusual or does not fit is left to them: `otherwise` is called with the same bytes then.
   2. json_parsing.h reads plain values, also those of fields. Objects of types are made as they are read. patterns.h makes those
      that have the names of others at once.
   3. Classes have no `__new__` of their own, and attributes are set past `__setattr__`, as pydantic does: no code of the program
      runs here. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <structmember.h>
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct Node Node;

#include "json_parsing.h"

#define EXACT_MAX ((double)(1LL << 53))
#define FIELDS_MAX NAMES_MAX
#define PAUSE_MAX 63

typedef enum {
    ANY = 'a',
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

typedef struct {
    PyObject *alias, *name, *default_value;
    int may_be_absent;
    Node *value;
} Field;

/* `given`: the names of all fields. `as_dict`: attributes can be set as a dict only. `slots`: of a model, where its objects hold
   what is known of their fields. */
struct Node {
    Kind kind;
    int as_dict;
    Py_ssize_t slots[3];
    PyObject *cls, *given, *pattern;
    Node *inner;
    Py_ssize_t field_count;
    Field *fields;
    Places places;
};

/* `pause`: for so many values it is not tried to read them here, `paused` the last time that it began. */
typedef struct {
    PyObject_HEAD
    PyObject *otherwise;
    Node *plan;
    int pause, paused;
} Reader;

enum { FIELDS_SET, EXTRA, PRIVATE };
static const char *const MODEL_SLOTS[] = {"__pydantic_fields_set__", "__pydantic_extra__", "__pydantic_private__"};

static PyObject *empty;

/* ------------------------------------------------------------------------------------------------- plans */

static void drop(Node *node)
{
    if (node == NULL)
        return;
    for (Py_ssize_t i = 0; i < node->field_count; i++) {
        Field *field = &node->fields[i];
        Py_XDECREF(field->alias);
        Py_XDECREF(field->name);
        Py_XDECREF(field->default_value);
        drop(field->value);
    }
    PyMem_Free(node->fields);
    Py_XDECREF(node->cls);
    Py_XDECREF(node->given);
    Py_XDECREF(node->pattern);
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
    PyUnicode_InternInPlace(&field->alias);
    PyUnicode_InternInPlace(&field->name);
    if (PyTuple_GET_SIZE(defaults) == 1)
        field->default_value = Py_NewRef(PyTuple_GET_ITEM(defaults, 0));
    field->value = read_plan(value);
    return field->value == NULL ? -1 : 0;
}

static int read_fields(Node *node, PyObject *cls, PyObject *fields)
{
    PyObject *names[FIELDS_MAX];
    Py_ssize_t count = PyTuple_GET_SIZE(fields);
    node->cls = Py_NewRef(cls);
    node->given = PySet_New(NULL);
    node->fields = PyMem_Calloc((size_t)(count ? count : 1), sizeof(Field));
    if (node->given == NULL)
        return -1;
    if (count > FIELDS_MAX) {
        PyErr_SetString(PyExc_ValueError, "too many fields");
        return -1;
    }
    if (node->fields == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        Field *field = &node->fields[i];
        node->field_count = i + 1;
        if (read_field(field, PyTuple_GET_ITEM(fields, i)) < 0 || PySet_Add(node->given, field->name) < 0)
            return -1;
        names[i] = field->name;
    }
    node->pattern = pattern_of(names, count);
    return PyErr_Occurred() ? -1 : 0;
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

/* Whether the class has code that is called when one of the attributes is set. */
static int has_descriptors(Node *node)
{
    PyObject *ways = PyType_Check(node->cls) ? ((PyTypeObject *)node->cls)->tp_mro : NULL;
    if (ways == NULL)
        return -1;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(ways); i++) {
        PyObject *attributes = ((PyTypeObject *)PyTuple_GET_ITEM(ways, i))->tp_dict;
        for (Py_ssize_t j = 0; j < node->field_count && attributes != NULL; j++) {
            PyObject *found = PyDict_GetItemWithError(attributes, node->fields[j].name);
            if (found != NULL && Py_TYPE(found)->tp_descr_set != NULL)
                return 1;
        }
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
    if (!failed && (node->kind == MODEL || node->kind == DATACLASS))
        failed = (node->as_dict = has_descriptors(node)) < 0;
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

/* A plain value as that of a node. */
static PyObject *fit(Node *node, PyObject *value)
{
    int fits = 0;
    switch (node->kind) {
    case ANY:
        fits = 1;
        break;
    case STR:
        fits = PyUnicode_CheckExact(value);
        break;
    case INT:
        fits = PyLong_CheckExact(value);
        break;
    case FLOAT:
        return fit_float(value);
    case BOOL:
        fits = PyBool_Check(value);
        break;
    case NONE:
        fits = value == Py_None;
        break;
    default:
        break;
    }
    return fits ? Py_NewRef(value) : NULL;
}

static void set_model(Node *node, PyObject *made, PyObject *given)
{
    PyObject *values[] = {given, Py_None, Py_None};
    for (int i = FIELDS_SET; i <= PRIVATE; i++)
        /* The object is new, so there is nothing in these. */
        *(PyObject **)((char *)made + node->slots[i]) = Py_NewRef(values[i]);
}

/* Puts the default of each field that was not there into its place; whether each has a value now. */
static int fill_in(Node *node, PyObject **values)
{
    int whole = 1;
    for (Py_ssize_t i = 0; i < node->field_count; i++) {
        if (values[i] == NULL)
            values[i] = Py_XNewRef(node->fields[i].default_value);
        whole &= values[i] != NULL;
    }
    return whole;
}

/* The values have been taken over. */
static void clear(Node *node, PyObject **values)
{
    memset(values, 0, sizeof(PyObject *) * (size_t)node->field_count);
}

/* A dict of the fields in their order. */
static PyObject *dict_of(Node *node, PyObject **values)
{
    int whole = fill_in(node, values);
    PyObject *made = whole && node->pattern != NULL ? dict_like(node->pattern, values) : NULL;
    if (made != NULL) {
        clear(node, values);
        return made;
    }
    made = new_dict(node->field_count);
    for (Py_ssize_t i = 0; i < node->field_count && made != NULL; i++) {
        Field *field = &node->fields[i];
        if (values[i] != NULL ? PyDict_SetItem(made, field->name, values[i]) < 0 : !field->may_be_absent)
            Py_CLEAR(made);
    }
    return made;
}

/* Sets the attributes of a new object; what it takes over of the values is NULL then. */
static int set_attributes(Node *node, PyObject *made, PyObject **values)
{
    if (!fill_in(node, values))
        return -1;
    if (node->places.keys != NULL && set_at_places(&node->places, made, values, node->field_count)) {
        clear(node, values);
        return 0;
    }
    for (Py_ssize_t i = 0; i < node->field_count; i++)
        if (PyObject_GenericSetAttr(made, node->fields[i].name, values[i]) < 0)
            return -1;
    if (node->kind != SLOTS && !find_places(&node->places, made, values, node->field_count))
        node->places.keys = NULL;
    return 0;
}

static int set_dict(Node *node, PyObject *made, PyObject **values)
{
    PyObject *attributes = dict_of(node, values);
    int failed = attributes == NULL ? -1 : PyObject_GenericSetDict(made, attributes, NULL);
    Py_XDECREF(attributes);
    return failed;
}

/* The names of the fields that were there. */
static PyObject *given_of(Node *node, PyObject **values)
{
    PyObject *given = PySet_New(node->given);
    for (Py_ssize_t i = 0; i < node->field_count && given != NULL; i++)
        if (values[i] == NULL && PySet_Discard(given, node->fields[i].name) < 0)
            Py_CLEAR(given);
    return given;
}

/* An object of a class. */
static PyObject *object_of(Node *node, PyObject **values)
{
    PyTypeObject *type = (PyTypeObject *)node->cls;
    PyObject *given = node->kind == MODEL ? given_of(node, values) : NULL;
    if (node->kind == MODEL && given == NULL)
        return NULL;
    PyObject *made = type->tp_new(type, empty, NULL);
    if (made != NULL && (node->as_dict ? set_dict(node, made, values) : set_attributes(node, made, values)) < 0)
        Py_CLEAR(made);
    if (made != NULL && node->kind == MODEL)
        set_model(node, made, given);
    Py_XDECREF(given);
    return made;
}

/* Which field a name is, -1: none. `expected`: probably that one. Names of fields are interned. */
static Py_ssize_t field_of(const Node *node, PyObject *name, Py_ssize_t expected)
{
    if (expected < node->field_count && node->fields[expected].alias == name)
        return expected;
    int interned = PyUnicode_CHECK_INTERNED(name);
    for (Py_ssize_t i = 0; i < node->field_count; i++) {
        PyObject *alias = node->fields[i].alias;
        if (alias == name || (!interned && PyUnicode_Compare(alias, name) == 0))
            return i;
    }
    return -1;
}

static int parse_field(Source *source, Node *node, Walk *walk, PyObject **values, Py_ssize_t *expected, int depth)
{
    PyObject *name = parse_name(source, walk), *value = NULL;
    if (name != NULL && take_sign(source, ':')) {
        Py_ssize_t index = field_of(node, name, *expected);
        if (index < 0) {
            value = parse_value(source, walk->inner, depth);
            Py_XDECREF(value);
        } else if ((value = parse_typed(source, node->fields[index].value, walk->inner, depth)) != NULL) {
            Py_XSETREF(values[index], value); /* the last one of several, as orjson and pydantic do */
            *expected = index + 1;
        }
    }
    Py_XDECREF(name);
    return value == NULL ? -1 : 0;
}

/* The values of the fields of an object, NULL for those that are absent. */
static int parse_fields(Source *source, Node *node, PyObject **values, unsigned place, int depth)
{
    Py_ssize_t expected = 0;
    source->at++;
    if (take_sign(source, '}'))
        return 0;
    for (Walk walk = {place};;) {
        if (parse_field(source, node, &walk, values, &expected, depth) < 0)
            return -1;
        if (take_sign(source, '}'))
            return 0;
        if (!take_sign(source, ','))
            return -1;
        skip_space(source);
    }
}

static PyObject *parse_typed_object(Source *source, Node *node, unsigned place, int depth)
{
    PyObject *values[FIELDS_MAX], *made = NULL;
    if (depth == DEPTH_MAX)
        return NULL;
    memset(values, 0, sizeof(PyObject *) * (size_t)node->field_count);
    if (parse_fields(source, node, values, place, depth + 1) == 0)
        made = node->kind == TYPED_DICT ? dict_of(node, values) : object_of(node, values);
    for (Py_ssize_t i = 0; i < node->field_count; i++)
        Py_XDECREF(values[i]);
    return made;
}

/* The next value, as that of a node. */
static PyObject *parse_typed(Source *source, Node *node, unsigned place, int depth)
{
    skip_space(source);
    if (node->kind == NULLABLE && *source->at == 'n')
        return parse_constant(source, "null", Py_None);
    while (node->kind == NULLABLE)
        node = node->inner;
    if (node->kind == LIST)
        return *source->at == '[' && depth < DEPTH_MAX ? parse_list(source, node->inner, place, depth + 1) : NULL;
    if (node->field_count > 0 || node->cls != NULL)
        return *source->at == '{' ? parse_typed_object(source, node, place, depth) : NULL;
    PyObject *value = parse_value(source, place, depth);
    PyObject *made = value == NULL ? NULL : fit(node, value);
    Py_XDECREF(value);
    return made;
}

/* ------------------------------------------------------------------------------------------------- reading */

static PyObject *parse(Node *plan, PyObject *data)
{
    bytes_at start = (bytes_at)PyBytes_AS_STRING(data);
    Source source = {start, start + PyBytes_GET_SIZE(data)};
    PyObject *made = parse_typed(&source, plan, WHOLE, 0);
    if (made != NULL && !is_at_end(&source))
        Py_CLEAR(made);
    return made;
}

static PyObject *Reader_read(Reader *self, PyObject *data)
{
    if (PyBytes_CheckExact(data)) {
        if (self->pause == 0) {
            PyObject *made = parse(self->plan, data);
            if (made != NULL) {
                self->paused = 0;
                return made;
            }
            PyErr_Clear();
            /* Where nothing fits, to try costs less and less. */
            self->pause = self->paused = self->paused * 2 + 1 < PAUSE_MAX ? self->paused * 2 + 1 : PAUSE_MAX;
        } else {
            self->pause--;
        }
    }
    return PyObject_CallOneArg(self->otherwise, data);
}

static PyObject *Reader_new(PyTypeObject *type, PyObject *arguments, PyObject *named)
{
    PyObject *plan, *otherwise;
    if (!PyArg_ParseTuple(arguments, "O!O", &PyTuple_Type, &plan, &otherwise))
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
    self->otherwise = Py_NewRef(otherwise);
    return (PyObject *)self;
}

static void Reader_dealloc(Reader *self)
{
    PyTypeObject *type = Py_TYPE(self);
    drop(self->plan);
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
    {Py_tp_doc, "Reads JSON as plain values or as values of a type."},
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
