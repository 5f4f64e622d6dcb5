/* Numbers of keys, and counts of rows that have these numbers. A part of kernels.c. */

typedef struct {
    uint32_t hash;
    int32_t number;
} Slot;

/* The bytes of all keys are together: what a key is compared with is rarely out of the processor's cache.
   `ends`: where each key ends in `bytes`; the first entry is 0. */
typedef struct {
    PyObject_HEAD
    Slot *slots;
    unsigned char *bytes;
    Py_ssize_t *ends;
    Py_ssize_t mask, used, room, bytes_room;
} KeyNumbers;

#define LEAST_SLOTS 64
#define NO_NUMBER (-1)

/* All of up to eight bytes, of which some may be there twice. Calls of memcpy() and memcmp() for sizes that only the program
   knows take longer than the rest of a look-up. */
static inline uint64_t word_of(bytes_at at, Py_ssize_t size)
{
    if (size >= 8) {
        uint64_t word;
        memcpy(&word, at, 8);
        return word;
    }
    if (size >= 4) {
        uint32_t first, last;
        memcpy(&first, at, 4);
        memcpy(&last, at + size - 4, 4);
        return (uint64_t)first << 32 | last;
    }
    return size ? (uint64_t)at[0] << 16 | (uint64_t)at[size / 2] << 8 | at[size - 1] : 0;
}

static inline uint64_t mixed(uint64_t value, uint64_t word)
{
    value = (value ^ word) * 0xC2B2AE3D27D4EB4Fu;
    return value ^ value >> 32;
}

static inline uint32_t hash_of(bytes_at key, Py_ssize_t size)
{
    uint64_t value = 0x9E3779B97F4A7C15u ^ (uint64_t)size;
    Py_ssize_t at = 0;
    for (; at + 8 < size; at += 8)
        value = mixed(value, word_of(key + at, 8));
    /* The last eight bytes, some of which may have been taken before. */
    value = size > 8 ? mixed(value, word_of(key + size - 8, 8)) : mixed(value, word_of(key, size));
    return (uint32_t)(value * 0x9E3779B97F4A7C15u >> 32);
}

static inline int are_equal(bytes_at one, bytes_at other, Py_ssize_t size)
{
    for (Py_ssize_t at = 0; at + 8 < size; at += 8)
        if (word_of(one + at, 8) != word_of(other + at, 8))
            return 0;
    Py_ssize_t last = size > 8 ? size - 8 : 0;
    return word_of(one + last, size - last) == word_of(other + last, size - last);
}

static Slot *new_slots(Py_ssize_t count)
{
    Slot *slots = PyMem_Malloc(count * sizeof(Slot));
    if (slots == NULL)
        return (Slot *)PyErr_NoMemory();
    for (Py_ssize_t index = 0; index < count; index++)
        slots[index].number = NO_NUMBER;
    return slots;
}

/* Doubles the slots when half of them are taken. */
static int grow_slots(KeyNumbers *self)
{
    if (2 * self->used < self->mask)
        return 0;
    Py_ssize_t count = 2 * (self->mask + 1);
    Slot *slots = new_slots(count);
    if (slots == NULL)
        return -1;
    for (Py_ssize_t index = 0; index <= self->mask; index++) {
        Slot slot = self->slots[index];
        if (slot.number == NO_NUMBER)
            continue;
        Py_ssize_t at = slot.hash & (count - 1);
        while (slots[at].number != NO_NUMBER)
            at = (at + 1) & (count - 1);
        slots[at] = slot;
    }
    PyMem_Free(self->slots);
    self->slots = slots;
    self->mask = count - 1;
    return 0;
}

/* Makes room for one more key of that size. */
static int reserve(KeyNumbers *self, Py_ssize_t size)
{
    if (self->used == self->room) {
        Py_ssize_t room = self->room ? 2 * self->room : LEAST_SLOTS;
        if (room > INT32_MAX) {
            PyErr_SetString(PyExc_OverflowError, "too many keys");
            return -1;
        }
        Py_ssize_t *ends = PyMem_Realloc(self->ends, (room + 1) * sizeof(Py_ssize_t));
        if (ends == NULL) {
            PyErr_NoMemory();
            return -1;
        }
        ends[0] = 0;
        self->ends = ends;
        self->room = room;
    }
    Py_ssize_t needed = self->ends[self->used] + size;
    if (self->bytes == NULL || needed > self->bytes_room) {
        Py_ssize_t room = needed + needed / 2 + 16 * LEAST_SLOTS;
        unsigned char *bytes = PyMem_Realloc(self->bytes, room);
        if (bytes == NULL) {
            PyErr_NoMemory();
            return -1;
        }
        self->bytes = bytes;
        self->bytes_room = room;
    }
    return 0;
}

/* The slot that the key has, or would get. */
static inline Slot *slot_of(KeyNumbers *self, bytes_at key, Py_ssize_t size, uint32_t hash)
{
    Py_ssize_t at = hash & self->mask;
    for (;;) {
        Slot *slot = &self->slots[at];
        if (slot->number == NO_NUMBER)
            return slot;
        if (slot->hash == hash) {
            Py_ssize_t start = self->ends[slot->number];
            if (self->ends[slot->number + 1] - start == size && are_equal(self->bytes + start, key, size))
                return slot;
        }
        at = (at + 1) & self->mask;
    }
}

/* The number of a key. A new one gets the next number, and is appended to a list; -1 where that failed. `item`: the key
   as an object, NULL if there is none. */
static inline int64_t number_of(KeyNumbers *self, bytes_at key, Py_ssize_t size, PyObject *item, PyObject *new)
{
    uint32_t hash = hash_of(key, size);
    Slot *slot = slot_of(self, key, size, hash);
    if (slot->number != NO_NUMBER)
        return slot->number;
    item = item == NULL ? PyBytes_FromStringAndSize((const char *)key, size) : Py_NewRef(item);
    if (item == NULL)
        return -1;
    int failed = reserve(self, size) < 0 || PyList_Append(new, item) < 0;
    Py_DECREF(item);
    if (failed)
        return -1;
    int32_t number = (int32_t)self->used++;
    slot->hash = hash;
    slot->number = number;
    Py_ssize_t start = self->ends[number];
    memcpy(self->bytes + start, key, size);
    self->ends[number + 1] = start + size;
    return grow_slots(self) < 0 ? -1 : number;
}

static int number_all(KeyNumbers *self, PyObject *keys, int64_t *numbers, PyObject *new)
{
    Py_ssize_t count = PySequence_Fast_GET_SIZE(keys);
    for (Py_ssize_t index = 0; index < count; index++) {
        PyObject *item = PySequence_Fast_GET_ITEM(keys, index);
        if (!PyBytes_Check(item)) {
            PyErr_Format(PyExc_TypeError, "a key is bytes, not %.100s", Py_TYPE(item)->tp_name);
            return -1;
        }
        numbers[index] = number_of(self, (bytes_at)PyBytes_AS_STRING(item), PyBytes_GET_SIZE(item), item, new);
        if (numbers[index] < 0)
            return -1;
    }
    return 0;
}

static int number_places(KeyNumbers *self, Places *places, int64_t *numbers, PyObject *new)
{
    for (Py_ssize_t index = 0; index < places->count; index++) {
        bytes_at key;
        int32_t size;
        if (item_at(places, index, &key, &size) < 0)
            return -1;
        if (size < 0) {
            PyErr_SetString(PyExc_TypeError, "a key is bytes, not None");
            return -1;
        }
        numbers[index] = number_of(self, key, size, NULL, new);
        if (numbers[index] < 0)
            return -1;
    }
    return 0;
}

PyDoc_STRVAR(numbers_doc,
"numbers(keys, numbers)\n--\n\n"
"Writes the number of each key into `numbers`; a new key gets the next one. Returns the keys that were new.");

static PyObject *KeyNumbers_numbers(KeyNumbers *self, PyObject *const *args, Py_ssize_t nargs)
{
    if (nargs != 2) {
        PyErr_SetString(PyExc_TypeError, "numbers takes 2 arguments");
        return NULL;
    }
    PyObject *keys = PySequence_Fast(args[0], "keys are a sequence"), *new = NULL;
    if (keys == NULL)
        return NULL;
    Py_buffer numbers;
    if (room_for(args[1], PyBUF_WRITABLE, PySequence_Fast_GET_SIZE(keys), sizeof(int64_t), &numbers)) {
        new = PyList_New(0);
        if (new != NULL && number_all(self, keys, numbers.buf, new) < 0)
            Py_CLEAR(new);
        PyBuffer_Release(&numbers);
    }
    Py_DECREF(keys);
    return new;
}

PyDoc_STRVAR(get_doc, "get(key)\n--\n\nThe number of a key; None where it has none.");

static PyObject *KeyNumbers_get(KeyNumbers *self, PyObject *key)
{
    if (!PyBytes_Check(key))
        Py_RETURN_NONE;
    bytes_at start = (bytes_at)PyBytes_AS_STRING(key);
    Py_ssize_t size = PyBytes_GET_SIZE(key);
    int32_t number = slot_of(self, start, size, hash_of(start, size))->number;
    if (number == NO_NUMBER)
        Py_RETURN_NONE;
    return PyLong_FromLong(number);
}

static Py_ssize_t KeyNumbers_length(KeyNumbers *self)
{
    return self->used;
}

static PyObject *KeyNumbers_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    if (PyTuple_GET_SIZE(args) || (kwargs != NULL && PyDict_GET_SIZE(kwargs))) {
        PyErr_SetString(PyExc_TypeError, "KeyNumbers takes no arguments");
        return NULL;
    }
    KeyNumbers *self = (KeyNumbers *)type->tp_alloc(type, 0);
    if (self == NULL)
        return NULL;
    self->slots = new_slots(LEAST_SLOTS);
    if (self->slots == NULL) {
        Py_DECREF(self);
        return NULL;
    }
    self->mask = LEAST_SLOTS - 1;
    return (PyObject *)self;
}

static void KeyNumbers_dealloc(KeyNumbers *self)
{
    PyTypeObject *type = Py_TYPE(self);
    PyMem_Free(self->ends);
    PyMem_Free(self->bytes);
    PyMem_Free(self->slots);
    type->tp_free((PyObject *)self);
    Py_DECREF(type);
}

PyDoc_STRVAR(numbers_at_doc,
"numbers_at(known, records, positions, numbers)\n--\n\n"
"As known.numbers(), for the keys of records at positions that read_records() found. None unless `known` is in C.");

static PyObject *numbers_at(PyObject *module, PyObject *const *args, Py_ssize_t nargs)
{
    if (nargs != 4) {
        PyErr_SetString(PyExc_TypeError, "numbers_at takes 4 arguments");
        return NULL;
    }
    if (Py_TYPE(args[0])->tp_dealloc != (destructor)KeyNumbers_dealloc)
        Py_RETURN_NONE;
    Places places;
    if (open_places(args[1], args[2], &places) < 0)
        return NULL;
    PyObject *new = NULL;
    Py_buffer numbers;
    if (room_for(args[3], PyBUF_WRITABLE, places.count, sizeof(int64_t), &numbers)) {
        new = PyList_New(0);
        if (new != NULL && number_places((KeyNumbers *)args[0], &places, numbers.buf, new) < 0)
            Py_CLEAR(new);
        PyBuffer_Release(&numbers);
    }
    close_places(&places);
    return new;
}

PyDoc_STRVAR(are_ascending_doc, "are_ascending(times)\n--\n\nWhether none of the times is less than the one before.");

static PyObject *are_ascending(PyObject *module, PyObject *array)
{
    Py_buffer times;
    if (!room_for(array, PyBUF_SIMPLE, 0, sizeof(int64_t), &times))
        return NULL;
    const int64_t *at = times.buf;
    Py_ssize_t count = times.len / (Py_ssize_t)sizeof(int64_t), index = 1;
    while (index < count && at[index] >= at[index - 1])
        index++;
    PyBuffer_Release(&times);
    return PyBool_FromLong(index >= count);
}

PyDoc_STRVAR(add_counts_doc,
"add_counts(numbers, times, positions, totals, latest, changed_at)\n--\n\n"
"For each record: adds 1 to its row's total, and keeps the greatest of times and of positions. `numbers`: their rows;\n"
"`positions`: theirs, or that of the first one.");

static PyObject *add_counts(PyObject *module, PyObject *const *args, Py_ssize_t nargs)
{
    enum { NUMBERS, TIMES, POSITIONS, TOTALS, LATEST, CHANGED_AT, COLUMNS };
    if (nargs != COLUMNS) {
        PyErr_SetString(PyExc_TypeError, "add_counts takes 6 arguments");
        return NULL;
    }
    int64_t first = 0, *columns[COLUMNS] = {NULL};
    Py_ssize_t records = 0, rows = 0;
    Py_buffer buffers[COLUMNS];
    int opened = 0;
    PyObject *result = NULL;
    for (int each = 0; each < COLUMNS; each++) {
        if (each == POSITIONS && PyLong_Check(args[each])) {
            first = PyLong_AsLongLong(args[each]);
            if (first == -1 && PyErr_Occurred())
                goto done;
            continue;
        }
        Py_ssize_t needed = each == NUMBERS || each == TOTALS ? 0 : each < TOTALS ? records : rows;
        if (!room_for(args[each], each < TOTALS ? PyBUF_SIMPLE : PyBUF_WRITABLE, needed, sizeof(int64_t), &buffers[opened]))
            goto done;
        columns[each] = buffers[opened].buf;
        Py_ssize_t size = buffers[opened++].len / (Py_ssize_t)sizeof(int64_t);
        if (each == NUMBERS)
            records = size;
        else if (each == TOTALS)
            rows = size;
    }
    for (Py_ssize_t index = 0; index < records; index++) {
        int64_t row = columns[NUMBERS][index], time = columns[TIMES][index];
        int64_t position = columns[POSITIONS] == NULL ? first + index : columns[POSITIONS][index];
        if (row < 0 || row >= rows) {
            PyErr_SetString(PyExc_IndexError, "there is no such row");
            goto done;
        }
        columns[TOTALS][row]++;
        if (time > columns[LATEST][row])
            columns[LATEST][row] = time;
        if (position > columns[CHANGED_AT][row])
            columns[CHANGED_AT][row] = position;
    }
    result = Py_NewRef(Py_None);
done:
    while (opened > 0)
        PyBuffer_Release(&buffers[--opened]);
    return result;
}

static PyMethodDef key_numbers_methods[] = {
    {"numbers", (PyCFunction)(void (*)(void))KeyNumbers_numbers, METH_FASTCALL, numbers_doc},
    {"get", (PyCFunction)KeyNumbers_get, METH_O, get_doc},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot key_numbers_slots[] = {
    {Py_tp_doc, "Keys and their numbers, in the order in which they came."},
    {Py_tp_new, KeyNumbers_new},
    {Py_tp_dealloc, KeyNumbers_dealloc},
    {Py_tp_methods, key_numbers_methods},
    {Py_mp_length, KeyNumbers_length},
    {0, NULL},
};

static PyType_Spec key_numbers_spec = {
    "_streamsrt_kernels.KeyNumbers", sizeof(KeyNumbers), 0, Py_TPFLAGS_DEFAULT, key_numbers_slots,
};
