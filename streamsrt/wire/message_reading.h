/* Reads values of Protobuf with a schema registry: see MessageReader in streamsrt/wire/kernels.py.

   1. A message is made by `parse`. To make one takes as long as to fill it: memory of its own, and an object that has it. So
      a message that nobody but this reader knows any more is filled again, by `again`, which clears it before.
   2. A message is looked at two values later: until the next one, the variable of a loop still has it.
   3. What was read from a message, such as one within it, shares its memory, and stays as it was: clearing forgets, but
      frees nothing. So little is read into one message, as its memory grows until it is gone.
   4. A program that keeps messages gets each in memory of its own: one is filled again only after many that were not kept.
   5. Where anything goes wrong, `parse` reads the same value, so errors are its own. */

#include <stddef.h>
#include <structmember.h>

#define SCHEMA_ID_BYTES 5
#define FILLED_BYTES_MAX 4096
#define NOT_KEPT_MIN 64

typedef struct {
    PyObject *message;
    Py_ssize_t bytes;
} Filled;

typedef struct {
    PyObject_HEAD
    vectorcallfunc call;
    PyObject *parse, *otherwise, *again, *indexes;
    Filled filled[2];
    int turn, not_kept;
} MessageReader;

/* The message of two values ago with other values in it; NULL, without an error, where that is not to be done. */
static PyObject *filled_again(MessageReader *self, Filled *filled, PyObject *rest)
{
    /* Nobody else finds it there meanwhile. */
    PyObject *message = filled->message;
    filled->message = NULL;
    if (message == NULL)
        return NULL;
    int is_kept = Py_REFCNT(message) != 1;
    self->not_kept = is_kept ? 0 : self->not_kept + (self->not_kept < NOT_KEPT_MIN);
    if (!is_kept && self->not_kept == NOT_KEPT_MIN && filled->bytes + PyBytes_GET_SIZE(rest) <= FILLED_BYTES_MAX) {
        PyObject *arguments[] = {message, rest};
        PyObject *result = PyObject_Vectorcall(self->again, arguments, 2, NULL);
        if (result != NULL) {
            Py_DECREF(result);
            return message;
        }
        PyErr_Clear();
    }
    Py_DECREF(message);
    return NULL;
}

static PyObject *filled_message(MessageReader *self, PyObject *rest)
{
    if (self->again == Py_None)
        return PyObject_CallOneArg(self->parse, rest);
    Filled *filled = &self->filled[self->turn ^= 1];
    Py_ssize_t bytes = filled->bytes + PyBytes_GET_SIZE(rest);
    PyObject *message = filled_again(self, filled, rest);
    if (message == NULL) {
        message = PyObject_CallOneArg(self->parse, rest);
        bytes = PyBytes_GET_SIZE(rest);
    }
    if (message != NULL && bytes <= FILLED_BYTES_MAX) {
        filled->bytes = bytes;
        Py_XSETREF(filled->message, Py_NewRef(message));
    }
    return message;
}

/* Whether it begins with a zero, the id of a schema, and the indexes of this type. */
static int has_head(MessageReader *self, PyObject *data)
{
    size_t size = (size_t)PyBytes_GET_SIZE(self->indexes);
    if (!PyBytes_CheckExact(data) || (size_t)PyBytes_GET_SIZE(data) < SCHEMA_ID_BYTES + size)
        return 0;
    const char *at = PyBytes_AS_STRING(data);
    return at[0] == 0 && memcmp(at + SCHEMA_ID_BYTES, PyBytes_AS_STRING(self->indexes), size) == 0;
}

static PyObject *MessageReader_call(PyObject *object, PyObject *const *args, size_t flags, PyObject *names)
{
    MessageReader *self = (MessageReader *)object;
    if (PyVectorcall_NARGS(flags) != 1 || (names != NULL && PyTuple_GET_SIZE(names) > 0)) {
        PyErr_SetString(PyExc_TypeError, "it takes the bytes of one value");
        return NULL;
    }
    PyObject *data = args[0];
    if (!has_head(self, data))
        return PyObject_CallOneArg(self->otherwise, data);
    Py_ssize_t head = SCHEMA_ID_BYTES + PyBytes_GET_SIZE(self->indexes);
    PyObject *rest = PyBytes_FromStringAndSize(PyBytes_AS_STRING(data) + head, PyBytes_GET_SIZE(data) - head);
    if (rest == NULL)
        return NULL;
    PyObject *result = filled_message(self, rest);
    Py_DECREF(rest);
    return result;
}

static PyObject *MessageReader_new(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
    PyObject *parse, *otherwise, *again, *indexes;
    if (!PyArg_ParseTuple(args, "OOOO!", &parse, &otherwise, &again, &PyBytes_Type, &indexes))
        return NULL;
    MessageReader *self = (MessageReader *)type->tp_alloc(type, 0);
    if (self == NULL)
        return NULL;
    self->call = MessageReader_call;
    self->parse = Py_NewRef(parse);
    self->otherwise = Py_NewRef(otherwise);
    self->again = Py_NewRef(again);
    self->indexes = Py_NewRef(indexes);
    return (PyObject *)self;
}

static int MessageReader_traverse(MessageReader *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(self->parse);
    Py_VISIT(self->otherwise);
    Py_VISIT(self->again);
    Py_VISIT(self->filled[0].message);
    Py_VISIT(self->filled[1].message);
    return 0;
}

/* Functions first become None: what is freed may still call. */
static int MessageReader_clear(MessageReader *self)
{
    Py_XSETREF(self->parse, Py_NewRef(Py_None));
    Py_XSETREF(self->otherwise, Py_NewRef(Py_None));
    Py_XSETREF(self->again, Py_NewRef(Py_None));
    Py_CLEAR(self->filled[0].message);
    Py_CLEAR(self->filled[1].message);
    return 0;
}

static void MessageReader_dealloc(MessageReader *self)
{
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    MessageReader_clear(self);
    Py_CLEAR(self->indexes);
    Py_CLEAR(self->parse);
    Py_CLEAR(self->otherwise);
    Py_CLEAR(self->again);
    type->tp_free((PyObject *)self);
    Py_DECREF(type);
}

static PyMemberDef message_reader_members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(MessageReader, call), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot message_reader_slots[] = {
    {Py_tp_doc, "MessageReader(parse, otherwise, again, indexes)\n--\n\n"
                "Reads values of Protobuf with a schema registry, see streamsrt.wire.kernels."},
    {Py_tp_new, MessageReader_new},
    {Py_tp_call, PyVectorcall_Call},
    {Py_tp_traverse, MessageReader_traverse},
    {Py_tp_clear, MessageReader_clear},
    {Py_tp_dealloc, MessageReader_dealloc},
    {Py_tp_members, message_reader_members},
    {0, NULL},
};

static PyType_Spec message_reader_spec = {
    "_streamsrt_kernels.MessageReader", sizeof(MessageReader), 0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL, message_reader_slots,
};
