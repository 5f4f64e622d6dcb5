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

#include "steps.h"
#include "reading.h"
#include "writing.h"

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
