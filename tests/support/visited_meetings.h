/* Meetings, and connections whose peers are played by raw visitors. */
#ifndef SPW_TESTS_VISITED_MEETINGS_H
#define SPW_TESTS_VISITED_MEETINGS_H

#include "loopback.h"

/* What our client expects to hear, and what it would say. */
static const uint8_t NONCE_HERE[SPW_NONCE_BYTES] = "expected here..";
static const uint8_t NONCE_THERE[SPW_NONCE_BYTES] = "expected there.";

typedef struct visited_meetings {
    torture *t;
    loopback pair; /* both ends expect nobody yet */
    private_place place;
    spw_meetings *meetings;
} visited_meetings;

void visited_meetings_open(torture *t, visited_meetings *at);
void visited_meetings_close(visited_meetings *at);
/* From now on the client expects its peer. */
void visited_meetings_expect(const visited_meetings *at);
bool visited_meetings_are_readable(const visited_meetings *at);
/* Somebody has come, and is let in or sent away. */
void visited_meetings_let_in(const visited_meetings *at);

/* A visitor: a descriptor, to be closed by the caller. */
int visitor_come(const visited_meetings *at);
void visitor_say_hello(int visitor, const uint8_t *nonce, uint64_t version);
/* What it was told: a way, 0 for nothing yet, or -1 when it was sent away. */
int visitor_told(int visitor);

#endif
