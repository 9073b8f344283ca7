#include "host_peer.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

/* What each tells the other. */
typedef struct meeting_place {
    char path[108];
    uint16_t port; /* of the test's listener */
    unsigned threads;
    uint32_t best;
    bool uses_descriptors;
} meeting_place;

static const uint8_t OF_TEST[SPW_NONCE_BYTES] = "of the test....";
static const uint8_t OF_PEER[SPW_NONCE_BYTES] = "of the peer....";

static void put(int control, const void *data, size_t size)
{
    assert_int_equal(send(control, data, size, MSG_NOSIGNAL), size);
}

static void get(int control, void *data, size_t size)
{
    assert_int_equal(recv(control, data, size, MSG_WAITALL), size);
}

void host_side_tell(const host_side *side)
{
    put(side->control, "!", 1);
}

void host_side_await(const host_side *side)
{
    char byte;
    get(side->control, &byte, 1);
}

static void open_side(torture *t, const spw_meetings_options *options, unsigned threads,
                      host_side *side)
{
    side->context = t->context;
    assert_ok(spw_reactor_create(t->context, threads, &side->reactor, NULL));
    assert_ok(spw_completions_create(side->reactor, &side->completions, NULL));
    private_place_open(&side->place);
    spw_meetings_options chosen = *options;
    chosen.parent = side->place.directory;
    assert_ok(spw_meetings_create(t->context, &chosen, &side->meetings, NULL));
    loopback_watch_meetings(side->meetings);
}

static void close_side(host_side *side)
{
    spw_connection_free(side->connection);
    spw_listener_free(side->listener);
    loopback_watch_meetings(NULL);
    spw_meetings_free(side->meetings);
    private_place_close(&side->place);
    spw_completions_free(side->completions);
    spw_reactor_free(side->reactor);
    close(side->control);
}

static spw_connection_options with(const host_side *side)
{
    spw_connection_options options = SPW_CONNECTION_OPTIONS_INIT;
    options.completions = side->completions;
    return options;
}

static void play(torture *t, const host_role *role, int control)
{
    host_side side = {.control = control};
    spw_meetings_options options = SPW_MEETINGS_OPTIONS_INIT;
    meeting_place theirs, ours = {.port = 0};
    get(control, &theirs, sizeof theirs);
    options.best = (spw_host_way)theirs.best;
    options.uses_descriptors = theirs.uses_descriptors;
    open_side(t, &options, theirs.threads, &side);
    snprintf(ours.path, sizeof ours.path, "%s", spw_meetings_path(side.meetings));
    put(control, &ours, sizeof ours);
    spw_connection_options connecting = with(&side);
    assert_ok(spw_connection_connect(t->context, "127.0.0.1", theirs.port, &connecting,
                                     &side.connection, NULL));
    while (spw_connection_is_connecting(side.connection))
        assert_ok(loopback_step(side.connection, NULL, NULL));
    assert_ok(spw_connection_meet(side.connection, side.meetings, OF_PEER, theirs.path,
                                  OF_TEST, NULL));
    role->play(t, &side);
    close_side(&side);
}

bool host_peer_is_one(int argc, char **argv, const host_role *roles, size_t count,
                      int *ret_code)
{
    if (argc != 4 || strcmp(argv[1], "--peer") != 0)
        return false;
    void *state;
    torture_setup(&state);
    *ret_code = 1;
    for (size_t i = 0; i < count; i++)
        if (strcmp(argv[2], roles[i].name) == 0) {
            play(state, &roles[i], atoi(argv[3]));
            *ret_code = torture_teardown(&state);
        }
    return true;
}

static pid_t start(const char *role, int control)
{
    char descriptor[16];
    snprintf(descriptor, sizeof descriptor, "%d", control);
    fflush(NULL);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        execl("/proc/self/exe", "peer", "--peer", role, descriptor, (char *)NULL);
        _exit(127);
    }
    return pid;
}

void host_peer_start(torture *t, const char *role, const spw_meetings_options *options,
                     unsigned threads, host_peer *ret_peer)
{
    const spw_meetings_options usual = SPW_MEETINGS_OPTIONS_INIT;
    host_side *side = &ret_peer->side;
    int controls[2];
    const char *host;
    *ret_peer = (host_peer){.pid = -1};
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, controls), 0);
    assert_int_equal(fcntl(controls[1], F_SETFD, 0), 0); /* for it to inherit */
    ret_peer->pid = start(role, controls[1]);
    close(controls[1]);
    side->control = controls[0];
    options = options != NULL ? options : &usual;
    open_side(t, options, threads, side);
    assert_ok(spw_listener_start(t->context, "127.0.0.1", 0, 4, &side->listener, NULL));
    meeting_place theirs, ours = {.threads = threads,
                                  .best = options->best,
                                  .uses_descriptors = options->uses_descriptors};
    spw_listener_local(side->listener, &host, &ours.port);
    snprintf(ours.path, sizeof ours.path, "%s", spw_meetings_path(side->meetings));
    put(side->control, &ours, sizeof ours);
    get(side->control, &theirs, sizeof theirs);
    spw_connection_options accepting = with(side);
    assert_ok(loopback_accept(side->listener, &accepting, &side->connection, NULL));
    assert_ok(spw_connection_meet(side->connection, side->meetings, OF_TEST,
                                  theirs.path, OF_PEER, NULL));
}

void host_peer_close(host_peer *peer)
{
    close_side(&peer->side);
}

void host_peer_kill(host_peer *peer)
{
    int status;
    assert_int_equal(kill(peer->pid, SIGKILL), 0);
    assert_int_equal(waitpid(peer->pid, &status, 0), peer->pid);
}

void host_peer_end(host_peer *peer)
{
    int status;
    host_peer_close(peer);
    assert_int_equal(waitpid(peer->pid, &status, 0), peer->pid);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
        fail_msg("the peer ended with status %x", (unsigned)status);
}

static void send_one(torture *t, host_side *side)
{
    static const size_t BODY[] = {300000};
    assert_ok(loopback_send_made(t, side->connection, BODY, 1, 1));
}

static void receive_one(torture *t, host_side *side)
{
    static const size_t BODY[] = {300000};
    assert_ok(loopback_receive_made(t, side->connection, NULL, BODY, 1, 1));
}

void host_side_meet(torture *t, host_side *side, bool is_first)
{
    if (is_first) {
        send_one(t, side);
        receive_one(t, side);
    } else {
        receive_one(t, side);
        send_one(t, side);
    }
    /* Let the other one in, and hear what it has decided. */
    while (torture_figures(t).host_meetings == 0 ||
           (spw_connection_interest(side->connection) & SPW_INTEREST_COMPLETION))
        assert_ok(loopback_step(side->connection, NULL, NULL));
    host_side_tell(side);
    host_side_await(side);
}
