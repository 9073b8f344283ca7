/* Types and arrays of Apache Arrow for tests: made from a text and a seed, and read
 * again value by value, from the specification, independently of the code under test.
 */
#ifndef TEST_ARROW_ARRAYS_H
#define TEST_ARROW_ARRAYS_H

#include "spillway/arrow.h"

/* A type from its format, with its children in brackets, each followed by a space or
 * the bracket's end; "?" before it: nullable; "@" after it: with a dictionary of
 * strings. Such as "?+l(+s(?i ?u))". To be given up by its release callback. */
struct ArrowSchema *arrow_schema_open(const char *text);
void arrow_schema_close(struct ArrowSchema *schema);

/* An array of a type, with slices at any offset and bitmaps here and there; each piece
 * of memory is as long as it has to be, and no longer. */
struct ArrowArray *arrow_array_open(const struct ArrowSchema *schema, int64_t length,
                                    unsigned *seed);
void arrow_array_close(struct ArrowArray *array);

/* Write value i of an array as text, behind what text has. */
void arrow_array_print(const struct ArrowSchema *schema, const struct ArrowArray *array,
                       int64_t i, char *text, size_t room);

#endif
