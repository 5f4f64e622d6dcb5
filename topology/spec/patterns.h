/* Dicts and objects with the names of those before them, made at once instead of name by name. A part of model_reading.c.

   1. A pattern of dicts is a dict with these names that only this module has: a copy of it, with its table as it is, gets the
      values. A pattern of objects is where the attributes of a class are in an object.
   2. Both need to know where Python keeps values, which is different from version to version: here are those of 3.11, and a
      pattern is looked at when it is made. With other versions there are no patterns, and names are set one by one. */

#define NAMES_MAX 64

/* Where the value of each attribute is, in the order of the fields; `keys`: of the class, to which names are only added. */
typedef struct {
    void *keys;
    unsigned char at[NAMES_MAX];
} Places;

static PyObject *new_dict(Py_ssize_t count)
{
#if PY_VERSION_HEX < 0x030D0000
    return count > 5 ? _PyDict_NewPresized(count) : PyDict_New();
#else
    return PyDict_New();
#endif
}

#if PY_VERSION_HEX >= 0x030B0000 && PY_VERSION_HEX < 0x030C0000 && !defined(Py_DEBUG) && !defined(Py_TRACE_REFS)

typedef struct {
    PyObject *name, *value;
} Entry;

/* The table of a dict, as pycore_dict.h has it; behind the indices are the entries. */
typedef struct {
    Py_ssize_t references;
    uint8_t size_log2, indices_log2, kind;
    uint32_t version;
    Py_ssize_t usable, count;
    char indices[];
} Table;

#define TABLE_OF_TEXTS 1
#define SMALL_MAX 5

static inline Table *table_of(PyObject *dict)
{
    return (Table *)((PyDictObject *)dict)->ma_keys;
}

static inline Entry *entries_of(PyObject *dict)
{
    Table *table = table_of(dict);
    return (Entry *)(table->indices + ((size_t)1 << table->indices_log2));
}

/* Whether a dict has these names, which are the same objects, in this order, and no others. */
static inline int has_names(PyObject *pattern, PyObject **names, Py_ssize_t count)
{
    if (PyDict_GET_SIZE(pattern) != count)
        return 0;
    Entry *entries = entries_of(pattern);
    for (Py_ssize_t i = 0; i < count; i++)
        if (entries[i].name != names[i])
            return 0;
    return 1;
}

/* A pattern of these names; NULL, perhaps with an exception, where there can be none. */
static PyObject *pattern_of(PyObject **names, Py_ssize_t count)
{
    PyObject *made = PyDict_New();
    for (Py_ssize_t i = 0; i < count && made != NULL; i++)
        if (!PyUnicode_CheckExact(names[i]) || PyDict_SetItem(made, names[i], Py_None) < 0)
            Py_CLEAR(made);
    if (made == NULL || count == 0 || PyDict_GET_SIZE(made) != count || ((PyDictObject *)made)->ma_values != NULL
        || table_of(made)->kind != TABLE_OF_TEXTS || table_of(made)->count != count || !has_names(made, names, count)
        || entries_of(made)[count - 1].value != Py_None)
        Py_CLEAR(made);
    return made;
}

/* A new dict with the table of a pattern, with some value for each name; NULL where that is not possible. */
static PyObject *copied(PyObject *pattern, PyObject **values)
{
    Py_ssize_t count = PyDict_GET_SIZE(pattern);
    if (count > SMALL_MAX)
        return PyDict_Copy(pattern);
    /* Small tables are at hand, where they come with the first name. */
    PyObject *made = PyDict_New();
    Entry *entries = entries_of(pattern);
    if (made == NULL || PyDict_SetItem(made, entries[0].name, values[0]) < 0) {
        Py_XDECREF(made);
        return NULL;
    }
    Table *table = table_of(made), *model = table_of(pattern);
    if (table->kind != model->kind || table->size_log2 != model->size_log2 || table->count != 1) {
        Py_DECREF(made);
        return NULL;
    }
    memcpy(table->indices, model->indices, (size_t)1 << model->indices_log2);
    table->usable = model->usable;
    table->count = count;
    ((PyDictObject *)made)->ma_used = count;
    Entry *own = entries_of(made);
    for (Py_ssize_t i = 1; i < count; i++) {
        own[i].name = Py_NewRef(entries[i].name);
        own[i].value = Py_NewRef(Py_None);
    }
    return made;
}

/* A dict with the names of a pattern. It takes over the values, unless it is NULL. */
static PyObject *dict_like(PyObject *pattern, PyObject **values)
{
    Py_INCREF(pattern); /* the copy may start a collection, which may run a program that reads with this */
    PyObject *made = copied(pattern, values);
    Py_DECREF(pattern);
    if (made == NULL)
        return NULL;
    Entry *entries = entries_of(made);
    int contains = 0;
    Py_ssize_t count = PyDict_GET_SIZE(made);
    for (Py_ssize_t i = 0; i < count; i++) {
        Py_DECREF(entries[i].value); /* None, or the same */
        entries[i].value = values[i];
        contains |= PyType_IS_GC(Py_TYPE(values[i]));
    }
    if (contains && !PyObject_GC_IsTracked(made))
        PyObject_GC_Track(made);
    return made;
}

/* ----------------------------------------------------------------------------------------------- objects */

/* The values of an object's attributes; before them are a byte with the space before them, one that counts those that are set,
   and their indices in the order in which they were set, backwards. NULL where they are in a dict. */
static inline PyObject **attributes_of(PyObject *object)
{
    return ((PyObject ***)object)[-4];
}

static inline unsigned char *count_of(PyObject **attributes)
{
    return (unsigned char *)attributes - 2;
}

static inline void *keys_of(PyTypeObject *type)
{
    return ((PyHeapTypeObject *)type)->ht_cached_keys;
}

/* Whether it is known now where attributes are. `made`: an object whose attributes have just been set, to these values. */
static int find_places(Places *places, PyObject *made, PyObject *const *values, Py_ssize_t count)
{
    PyTypeObject *type = Py_TYPE(made);
    if (!PyType_HasFeature(type, Py_TPFLAGS_MANAGED_DICT) || keys_of(type) == NULL || count == 0 || count > NAMES_MAX)
        return 0;
    PyObject **attributes = attributes_of(made);
    if (attributes == NULL || *count_of(attributes) != count)
        return 0;
    for (Py_ssize_t i = 0; i < count; i++) {
        places->at[i] = count_of(attributes)[-1 - i];
        if (attributes[places->at[i]] != values[i])
            return 0;
    }
    places->keys = keys_of(type);
    return 1;
}

/* Sets all attributes of a new object, which takes over the values; 0 where that is not possible. */
static int set_at_places(const Places *places, PyObject *made, PyObject *const *values, Py_ssize_t count)
{
    PyObject **attributes = places->keys == keys_of(Py_TYPE(made)) ? attributes_of(made) : NULL;
    if (attributes == NULL || *count_of(attributes) != 0)
        return 0;
    for (Py_ssize_t i = 0; i < count; i++) {
        attributes[places->at[i]] = values[i];
        count_of(attributes)[-1 - i] = places->at[i];
    }
    *count_of(attributes) = (unsigned char)count;
    return 1;
}

#else

static inline int has_names(PyObject *pattern, PyObject **names, Py_ssize_t count)
{
    return 0;
}

static PyObject *pattern_of(PyObject **names, Py_ssize_t count)
{
    return NULL;
}

static PyObject *dict_like(PyObject *pattern, PyObject **values)
{
    return NULL;
}

static int find_places(Places *places, PyObject *made, PyObject *const *values, Py_ssize_t count)
{
    return 0;
}

static int set_at_places(const Places *places, PyObject *made, PyObject *const *values, Py_ssize_t count)
{
    return 0;
}

#endif
