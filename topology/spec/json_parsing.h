/* JSON out of bytes, as objects of Python. A part of model_reading.c.

   1. What is made is what orjson makes of the same bytes. Whatever is unusual or wrong is declined: NULL, with or without an
      exception, and orjson reads the same bytes then, or raises its error.
   2. Records of one topic have the same names in the same order. So the name that followed the last time is compared first, and
      an object that is already there is used for it.
   3. Objects that are created may start a collection of garbage, which may run code of a program, which may read JSON: nothing
      of `words` or `texts` is held meanwhile without a reference of its own. Both are for all readers; the GIL protects them.
   4. Behind the bytes of a `bytes` there is a 0, which no token contains: it ends every loop. */

#define DEPTH_MAX 150 /* pydantic's parser refuses 200, orjson 1025 */
#define WORD_COUNT 1024 /* even */
#define WORD_BYTES 40
#define TEXT_COUNT 1024
#define TEXT_BYTES 8
#define INTERNED_MAX 4096
#define DIGITS_MAX 19 /* fewer than 2 to the power of 64 */
#define EXPONENT_MAX 9999
#define BATCH_ITEMS 16
#define ALIKE_MIN 3

#ifdef __SSE2__
#include <emmintrin.h>
#endif

#include "patterns.h"

typedef const unsigned char *bytes_at;

/* A name, at a place: `next` is the one that followed the last time, and `first` the first one in its value. `size` is 0 where
   there is none: the first words are places only. `pattern`: that of the objects that are its value, `names` a number for the
   names in the last one that it does not fit, and `alike` how many such ones followed each other. */
typedef struct {
    PyObject *key, *pattern;
    uint64_t start_mask; /* of the first eight bytes, those that are its own */
    uint32_t names;
    uint16_t next, first;
    uint8_t size, alike;
    unsigned char text[WORD_BYTES + 1];
} Word;

/* A short text, as a number. */
typedef struct {
    PyObject *made;
    uint64_t text;
} Text;

typedef struct {
    bytes_at at, end;
} Source;

static Word words[WORD_COUNT];
static Text texts[TEXT_COUNT];
static Py_ssize_t interned_count;

/* Places that are no names: the value as a whole, and what is in names that differ from record to record. */
enum { WHOLE, ANYWHERE, PLACES };

/* Where we are in an object: the word before, WHOLE where it is none, and the place of the value of the last name. */
typedef struct {
    unsigned place, last, inner;
    int started;
} Walk;

static PyObject *parse_value(Source *source, unsigned place, int depth);
static PyObject *parse_typed(Source *source, Node *node, unsigned place, int depth);

static inline int is_digit(unsigned char byte)
{
    return byte >= '0' && byte <= '9';
}

static inline void skip_space(Source *source)
{
    while (*source->at == ' ' || *source->at == '\n' || *source->at == '\r' || *source->at == '\t')
        source->at++;
}

/* Whether the next token is that one, which is taken then. */
static inline int take_sign(Source *source, unsigned char sign)
{
    skip_space(source);
    if (*source->at != sign)
        return 0;
    source->at++;
    return 1;
}

/* ------------------------------------------------------------------------------------------------- texts */

#define EACH_BYTE(byte) (0x0101010101010101ULL * (byte))

static inline uint64_t eight(bytes_at at)
{
    uint64_t value;
    memcpy(&value, at, 8);
    return value;
}

/* The first bytes of eight. */
static inline uint64_t mask_of(Py_ssize_t size)
{
    static const uint64_t bytes[] = {UINT64_MAX, 0};
    return eight((bytes_at)bytes + 8 - (size < 8 ? size : 8));
}

/* Which of eight bytes are a quote, a backslash, a control character or not ASCII: the highest bits of the lowest of them, and
   perhaps of higher ones. */
static inline uint64_t special(uint64_t value)
{
    uint64_t quote = value ^ EACH_BYTE('"'), slash = value ^ EACH_BYTE('\\');
    uint64_t found = (quote - EACH_BYTE(1)) | (slash - EACH_BYTE(1)) | (value - EACH_BYTE(0x20));
    return (found | value) & EACH_BYTE(0x80);
}

static inline int is_special(unsigned char byte)
{
    return byte == '"' || byte == '\\' || byte < 0x20 || byte >= 0x80;
}

/* The first byte that is not a plain letter of a text. */
static inline bytes_at plain_end(bytes_at at, bytes_at end)
{
#ifdef __SSE2__
    const __m128i quote = _mm_set1_epi8('"'), slash = _mm_set1_epi8('\\'), space = _mm_set1_epi8(' ');
    for (; end - at >= 16; at += 16) {
        __m128i some = _mm_loadu_si128((const __m128i *)at);
        /* As signed numbers, bytes that are not ASCII are less than a space, too. */
        __m128i found = _mm_or_si128(_mm_cmpeq_epi8(some, quote), _mm_cmpeq_epi8(some, slash));
        int bits = _mm_movemask_epi8(_mm_or_si128(found, _mm_cmplt_epi8(some, space)));
        if (bits != 0)
            return at + __builtin_ctz((unsigned)bits);
    }
#endif
    while (end - at >= 8 && !special(eight(at)))
        at += 8;
    while (!is_special(*at))
        at++;
    return at;
}

static PyObject *ascii_text(bytes_at at, Py_ssize_t size)
{
    PyObject *made = PyUnicode_New(size, 127);
    if (made != NULL && size > 0)
        memcpy(PyUnicode_1BYTE_DATA(made), at, (size_t)size);
    return made;
}

/* Short texts are often the same: a currency, a state. */
static PyObject *short_text(bytes_at at, Py_ssize_t size, bytes_at end)
{
    uint64_t text = 0;
    if (end - at >= 8)
        text = eight(at) & mask_of(size);
    else
        memcpy(&text, at, (size_t)size);
    /* No text has a 0, so these eight bytes tell its size, too. */
    Text *slot = &texts[(text * 0x9E3779B97F4A7C15ULL) >> 54];
    if (slot->text == text && slot->made != NULL)
        return Py_NewRef(slot->made);
    PyObject *made = ascii_text(at, size), *old = slot->made;
    if (made == NULL)
        return NULL;
    slot->made = Py_NewRef(made);
    slot->text = text;
    Py_XDECREF(old);
    return made;
}

static int hexadecimal(bytes_at at)
{
    int value = 0;
    for (int i = 0; i < 4; i++) {
        unsigned char byte = at[i], letter = byte | 0x20;
        if (is_digit(byte))
            value = value << 4 | (byte - '0');
        else if (letter >= 'a' && letter <= 'f')
            value = value << 4 | (letter - 'a' + 10);
        else
            return -1;
    }
    return value;
}

/* What is behind a backslash and a u, in UTF-8: how many bytes were written, 0 where that is no character. */
static int put_escaped(Source *source, unsigned char *put)
{
    long code = hexadecimal(source->at);
    if (code < 0)
        return 0;
    source->at += 4;
    if (code >= 0xD800 && code <= 0xDFFF) {
        int low = code < 0xDC00 && source->at[0] == '\\' && source->at[1] == 'u' ? hexadecimal(source->at + 2) : -1;
        if (low < 0xDC00 || low > 0xDFFF)
            return 0;
        source->at += 6;
        code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
    }
    if (code < 0x80) {
        put[0] = (unsigned char)code;
        return 1;
    }
    int more = code < 0x800 ? 1 : code < 0x10000 ? 2 : 3;
    static const unsigned char leads[] = {0, 0xC0, 0xE0, 0xF0};
    for (int i = more; i > 0; i--, code >>= 6)
        put[i] = (unsigned char)(0x80 | (code & 0x3F));
    put[0] = (unsigned char)(leads[more] | code);
    return more + 1;
}

static int put_letter(Source *source, unsigned char *put)
{
    static const char escapes[] = "\"\"\\\\//b\bf\fn\nr\rt\t";
    unsigned char letter = *source->at++;
    if (letter == 'u')
        return put_escaped(source, put);
    for (const char *each = escapes; *each; each += 2)
        if ((unsigned char)each[0] == letter) {
            put[0] = (unsigned char)each[1];
            return 1;
        }
    return 0;
}

/* A text with escapes or letters that are not ASCII; the source is behind its first quote. */
static PyObject *unusual_text(Source *source)
{
    bytes_at end = source->at;
    for (; *end != '"'; end += *end == '\\' && end[1] != 0 ? 2 : 1)
        if (*end < 0x20)
            return NULL;
    Py_ssize_t size = end - source->at;
    if (memchr(source->at, '\\', (size_t)size) == NULL) {
        PyObject *made = PyUnicode_DecodeUTF8((const char *)source->at, size, NULL);
        source->at = end + 1;
        return made;
    }
    /* No escape is shorter than what it stands for. */
    unsigned char *text = PyMem_Malloc((size_t)size + 4), *put = text;
    if (text == NULL)
        return NULL;
    int written = 1;
    while (source->at < end && written > 0) {
        written = 1;
        if (*source->at == '\\') {
            source->at++;
            written = put_letter(source, put);
        } else {
            *put = *source->at++;
        }
        put += written;
    }
    int whole = written > 0 && source->at == end;
    PyObject *made = whole ? PyUnicode_DecodeUTF8((const char *)text, put - text, NULL) : NULL;
    source->at = end + 1;
    PyMem_Free(text);
    return made;
}

static PyObject *parse_text(Source *source)
{
    bytes_at start = source->at + 1, end = plain_end(start, source->end);
    if (*end != '"') {
        source->at = start;
        return unusual_text(source);
    }
    source->at = end + 1;
    Py_ssize_t size = end - start;
    return size <= TEXT_BYTES ? short_text(start, size, source->end) : ascii_text(start, size);
}

/* ------------------------------------------------------------------------------------------------- numbers */

static const double tens[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,  1e8,  1e9,  1e10, 1e11,
                              1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};
#define TENS_MAX 22

/* The nearest number to digits / 10 ** places, halves to the even one; digits are not 0. */
static double divided(uint64_t digits, int places)
{
    uint64_t divisor = 1;
    int shift = 63;
    for (int i = 0; i < places; i++)
        divisor *= 10;
    for (; !(digits >> 63); shift++)
        digits <<= 1;
    for (; !(divisor >> 63); shift--)
        divisor <<= 1;
    unsigned __int128 dividend = (unsigned __int128)digits << 63;
    uint64_t quotient = (uint64_t)(dividend / divisor);
    /* At least 62 bits: a rest tells in the last of them that it is not half of what is rounded. */
    quotient |= dividend % divisor != 0;
    return ldexp((double)quotient, -shift);
}

static PyObject *made_float(uint64_t digits, long power, int negative)
{
    double number;
    if (digits == 0)
        number = 0.0;
    else if (FLT_EVAL_METHOD == 0 && digits <= 1ULL << 53 && power >= -TENS_MAX && power <= TENS_MAX)
        number = power < 0 ? (double)digits / tens[-power] : (double)digits * tens[power];
    else if (power < 0 && power >= -DIGITS_MAX)
        number = divided(digits, (int)-power);
    else
        return NULL;
    return PyFloat_FromDouble(negative ? -number : number);
}

/* Digits, added to a number that has some before; how many they are, -1 where they are too many. */
static inline int take_digits(Source *source, uint64_t *number, int before)
{
    bytes_at start = source->at;
    uint64_t value = *number;
    while (is_digit(*source->at) && source->at - start <= DIGITS_MAX)
        value = value * 10 + (uint64_t)(*source->at++ - '0');
    *number = value;
    Py_ssize_t taken = source->at - start;
    return taken + before > DIGITS_MAX ? -1 : (int)taken;
}

static PyObject *parse_fraction(Source *source, uint64_t digits, int count, int negative)
{
    long power = 0;
    if (*source->at == '.') {
        bytes_at start = ++source->at;
        /* Zeros before the first other digit are not among the digits of the number. */
        while (digits == 0 && *source->at == '0')
            source->at++;
        Py_ssize_t zeros = source->at - start;
        int more = take_digits(source, &digits, digits == 0 ? 0 : count);
        if (zeros > EXPONENT_MAX || more < 0 || zeros + more == 0)
            return NULL;
        power = -(long)(zeros + more);
    }
    if ((*source->at | 0x20) == 'e') {
        int down = *++source->at == '-';
        source->at += down || *source->at == '+';
        uint64_t exponent = 0;
        int places = take_digits(source, &exponent, 0);
        if (places <= 0 || exponent > EXPONENT_MAX)
            return NULL;
        power += down ? -(long)exponent : (long)exponent;
    }
    return made_float(digits, power, negative);
}

static PyObject *parse_number(Source *source)
{
    int negative = *source->at == '-';
    source->at += negative;
    bytes_at start = source->at;
    uint64_t digits = 0;
    int count = take_digits(source, &digits, 0);
    if (count <= 0 || (*start == '0' && count > 1))
        return NULL;
    if (*source->at == '.' || (*source->at | 0x20) == 'e')
        return parse_fraction(source, digits, count, negative);
    if (!negative)
        return digits <= INT64_MAX ? PyLong_FromLongLong((long long)digits) : PyLong_FromUnsignedLongLong(digits);
    return digits > INT64_MAX ? NULL : PyLong_FromLongLong(-(long long)digits);
}

/* ------------------------------------------------------------------------------------------------- names */

static inline int is_there(const Word *word, const Source *source)
{
    Py_ssize_t size = word->size, left = source->end - source->at;
    if (left < 8 || left < size || size == 0)
        return size != 0 && left >= size && memcmp(word->text, source->at, (size_t)size) == 0;
    if ((eight(word->text) ^ eight(source->at)) & word->start_mask)
        return 0;
    /* Eight bytes at once, the last ones perhaps a second time. */
    for (Py_ssize_t i = 8; i < size; i += 8) {
        Py_ssize_t at = i <= size - 8 ? i : size - 8;
        if (eight(word->text + at) != eight(source->at + at))
            return 0;
    }
    return 1;
}

static uint32_t hash_of(bytes_at text, Py_ssize_t size, unsigned place)
{
    uint32_t hash = 2166136261u ^ (place * 0x9E3779B9u);
    for (Py_ssize_t i = 0; i < size; i++)
        hash = (hash ^ text[i]) * 16777619u;
    return hash ^ hash >> 15;
}

/* The word of a name at a place, which is made where there is none; 0 where that is not possible. `text` has the quotes. */
static unsigned find_word(bytes_at text, Py_ssize_t size, unsigned place)
{
    uint32_t hash = hash_of(text, size, place);
    unsigned found = PLACES + hash % (WORD_COUNT - PLACES), other = found ^ 1;
    if (words[found].size == size && memcmp(words[found].text, text, (size_t)size) == 0)
        return found;
    if (words[other].size == size && memcmp(words[other].text, text, (size_t)size) == 0)
        return other;
    PyObject *key = ascii_text(text + 1, size - 2);
    if (key == NULL)
        return 0;
    /* The names in a program are interned as well, so they are the same objects. Those of others may be too many. */
    if (interned_count < INTERNED_MAX) {
        interned_count++;
        PyUnicode_InternInPlace(&key);
    }
    if (words[found].size != 0 && (words[other].size == 0 || (hash & 1 << 20)))
        found = other;
    Word *word = &words[found];
    PyObject *old = word->key;
    word->key = key;
    word->size = (uint8_t)size;
    word->next = word->first = 0;
    word->start_mask = mask_of(size);
    memcpy(word->text, text, (size_t)size);
    word->alike = 0;
    Py_CLEAR(word->pattern);
    Py_XDECREF(old);
    return found;
}

/* The next name of an object: a new reference. */
static PyObject *parse_name(Source *source, Walk *walk)
{
    unsigned last = walk->last, next = walk->started ? words[last].next : words[walk->place].first;
    walk->inner = next;
    if (!is_there(&words[next], source)) {
        if (*source->at != '"')
            return NULL;
        bytes_at end = plain_end(source->at + 1, source->end);
        Py_ssize_t size = end + 1 - source->at;
        next = *end == '"' && size <= WORD_BYTES ? find_word(source->at, size, walk->place) : 0;
        if (!walk->started)
            words[walk->place].first = (uint16_t)next;
        else if (last != 0)
            words[last].next = (uint16_t)next;
        walk->inner = ANYWHERE;
    }
    walk->started = 1;
    walk->last = next;
    if (next == 0)
        return parse_text(source);
    source->at += words[next].size;
    return Py_NewRef(words[next].key);
}

/* ------------------------------------------------------------------------------------------------- values */

/* What was read of an object: the last names and values, and a dict of those before them, if there are many. */
typedef struct {
    PyObject *names[BATCH_ITEMS], *values[BATCH_ITEMS], *longer;
    Py_ssize_t count;
} Pairs;

static void drop_pairs(Pairs *pairs)
{
    for (Py_ssize_t i = 0; i < pairs->count; i++) {
        Py_DECREF(pairs->names[i]);
        Py_XDECREF(pairs->values[i]);
    }
    pairs->count = 0;
}

/* Sets the pairs one by one, in `longer`, which is made where there is none. */
static int set_pairs(Pairs *pairs)
{
    int failed = pairs->longer == NULL && (pairs->longer = new_dict(pairs->count)) == NULL ? -1 : 0;
    for (Py_ssize_t i = 0; i < pairs->count && !failed; i++)
        failed = PyDict_SetItem(pairs->longer, pairs->names[i], pairs->values[i]);
    return failed;
}

/* Makes a pattern when several objects at a place had the same names: objects that differ would cost one each. */
static void note_names(unsigned place, Pairs *pairs)
{
    uint32_t names = (uint32_t)pairs->count;
    for (Py_ssize_t i = 0; i < pairs->count; i++)
        names = (names ^ (uint32_t)((uintptr_t)pairs->names[i] >> 4)) * 16777619u;
    words[place].alike = words[place].names == names ? words[place].alike + 1 : 0;
    words[place].names = names;
    if (words[place].alike < ALIKE_MIN)
        return;
    words[place].alike = 0;
    PyObject *made = pattern_of(pairs->names, pairs->count), *old = words[place].pattern;
    PyErr_Clear();
    words[place].pattern = made;
    Py_XDECREF(old);
}

static PyObject *dict_of_pairs(Pairs *pairs, unsigned place)
{
    PyObject *pattern = words[place].pattern;
    if (pairs->longer == NULL && pattern != NULL && has_names(pattern, pairs->names, pairs->count)) {
        PyObject *made = dict_like(pattern, pairs->values);
        if (made != NULL)
            memset(pairs->values, 0, sizeof(PyObject *) * (size_t)pairs->count);
        return made;
    }
    int is_short = pairs->longer == NULL;
    if (set_pairs(pairs) < 0)
        return NULL;
    if (is_short && PyDict_GET_SIZE(pairs->longer) == pairs->count)
        note_names(place, pairs);
    return Py_NewRef(pairs->longer);
}

static int parse_pairs(Source *source, Pairs *pairs, unsigned place, int depth)
{
    for (Walk walk = {place};;) {
        PyObject *name = parse_name(source, &walk);
        PyObject *value = name != NULL && take_sign(source, ':') ? parse_value(source, walk.inner, depth) : NULL;
        if (value == NULL) {
            Py_XDECREF(name);
            return -1;
        }
        if (pairs->count == BATCH_ITEMS) {
            int failed = set_pairs(pairs);
            drop_pairs(pairs);
            if (failed) {
                Py_DECREF(name);
                Py_DECREF(value);
                return -1;
            }
        }
        pairs->names[pairs->count] = name;
        pairs->values[pairs->count++] = value;
        if (take_sign(source, '}'))
            return 0;
        if (!take_sign(source, ','))
            return -1;
        skip_space(source);
    }
}

static PyObject *parse_object(Source *source, unsigned place, int depth)
{
    source->at++;
    if (take_sign(source, '}'))
        return PyDict_New();
    Pairs pairs;
    pairs.count = 0;
    pairs.longer = NULL;
    PyObject *made = parse_pairs(source, &pairs, place, depth) < 0 ? NULL : dict_of_pairs(&pairs, place);
    drop_pairs(&pairs);
    Py_XDECREF(pairs.longer);
    return made;
}

/* Lists of a few values are made at once. */
static PyObject *list_of(PyObject **items, Py_ssize_t count, PyObject *longer)
{
    if (longer == NULL) {
        PyObject *made = PyList_New(count);
        for (Py_ssize_t i = 0; i < count; i++)
            if (made != NULL)
                PyList_SET_ITEM(made, i, items[i]);
            else
                Py_DECREF(items[i]);
        return made;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        if (longer != NULL && PyList_Append(longer, items[i]) < 0)
            Py_CLEAR(longer);
        Py_DECREF(items[i]);
    }
    return longer;
}

/* `type`: the type of its values, NULL for plain ones. */
static PyObject *parse_list(Source *source, Node *type, unsigned place, int depth)
{
    PyObject *items[BATCH_ITEMS], *longer = NULL;
    Py_ssize_t count = 0;
    source->at++;
    if (take_sign(source, ']'))
        return PyList_New(0);
    for (;;) {
        PyObject *value = type == NULL ? parse_value(source, place, depth) : parse_typed(source, type, place, depth);
        if (value == NULL)
            break;
        items[count++] = value;
        if (!take_sign(source, ',')) {
            if (!take_sign(source, ']'))
                break;
            return list_of(items, count, longer);
        }
        if (count == BATCH_ITEMS) {
            longer = list_of(items, count, longer);
            count = 0;
            if (longer == NULL)
                return NULL;
        }
    }
    while (count > 0)
        Py_DECREF(items[--count]);
    Py_XDECREF(longer);
    return NULL;
}

static PyObject *parse_constant(Source *source, const char *text, PyObject *value)
{
    size_t size = strlen(text);
    if ((size_t)(source->end - source->at) < size || memcmp(source->at, text, size) != 0)
        return NULL;
    source->at += size;
    return Py_NewRef(value);
}

/* A value; spaces before it are skipped. `place`: the word that it is the value of. */
static PyObject *parse_value(Source *source, unsigned place, int depth)
{
    skip_space(source);
    switch (*source->at) {
    case '"':
        return parse_text(source);
    case '{':
        return depth == DEPTH_MAX ? NULL : parse_object(source, place, depth + 1);
    case '[':
        return depth == DEPTH_MAX ? NULL : parse_list(source, NULL, place, depth + 1);
    case 't':
        return parse_constant(source, "true", Py_True);
    case 'f':
        return parse_constant(source, "false", Py_False);
    case 'n':
        return parse_constant(source, "null", Py_None);
    default:
        return parse_number(source);
    }
}

static int is_at_end(Source *source)
{
    skip_space(source);
    return source->at == source->end;
}
