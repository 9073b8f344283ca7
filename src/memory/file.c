/* Files that slices are ranges of. Nothing is read here: whoever moves a range does.
 * Invariant: the descriptor is a file's own, to be closed with it, unless it has the
 * one of whole, which holds it open. */
#include "spillway/file.h"

#include <errno.h>
#include <inttypes.h>
#include <stdatomic.h>

#include "context/allocate.h"
#include "context/error.h"
#include "memory/place.h"
#include "platform/peer_process.h"
#include "platform/regular_file.h"

struct spw_file {
    _Atomic size_t references;
    spw_context *context; /* one reference */
    int descriptor;
    spw_file *whole;   /* one reference; NULL: the descriptor is its own */
    spw__place *place; /* one reference; NULL: none */
};

spw_status spw_file_adopt(spw_context *context, int descriptor, spw_file **ret_file,
                          spw_error *error)
{
    int answer = spw__regular_file_verify(descriptor);
    if (answer == -EINVAL || answer == -EBADF)
        return spw__error_set(error, SPW_STATUS_INVALID_ARGUMENT, -answer,
                              "descriptor %d is no ordinary file that is open for "
                              "reading",
                              descriptor);
    if (answer < 0)
        return spw__error_set(error, SPW_STATUS_IO, -answer,
                              "cannot ask what descriptor %d is", descriptor);
    spw_file *file = spw__allocate(context, sizeof *file, _Alignof(spw_file));
    if (file == NULL)
        return spw__error_set(error, SPW_STATUS_NO_MEMORY, 0, "no memory for a file");
    *file = (spw_file){
        .references = 1, .context = spw_context_ref(context), .descriptor = descriptor};
    *ret_file = file;
    return SPW_STATUS_OK;
}

/* That very file, which is asked of the file and not of the process, so that it need
 * not have been the right one. Returns: a descriptor, or a negative errno: ESTALE for
 * another file. */
static int take(const spw_file_claim *claim, uint64_t *ret_size)
{
    spw__file_facts about = {0};
    if (claim->process <= 0 || claim->process > INT32_MAX)
        return -ESRCH;
    int taken =
        spw__peer_process_take_descriptor((pid_t)claim->process, claim->descriptor);
    if (taken < 0)
        return taken;
    int answer = spw__regular_file_describe(taken, &about);
    if (answer == 0 && (about.device != claim->device || about.number != claim->inode))
        answer = -ESTALE;
    if (answer < 0) {
        spw__regular_file_close(taken);
        return answer;
    }
    *ret_size = about.bytes;
    return taken;
}

spw_status spw_file_take(spw_context *context, const spw_file_claim *claim,
                         spw_file **ret_file, uint64_t *ret_size, spw_error *error)
{
    int answer = take(claim, ret_size);
    if (answer == -EMFILE || answer == -ENFILE)
        return spw__error_set(error, SPW_STATUS_IO, -answer,
                              "no descriptor is left for a file of another process: "
                              "raise this process's limit of open files, ulimit -n");
    if (answer < 0)
        return spw__error_set(error, SPW_STATUS_UNSUPPORTED, -answer,
                              "cannot take descriptor %d of process %" PRId64,
                              claim->descriptor, claim->process);
    spw_status status = spw_file_adopt(context, answer, ret_file, error);
    if (status != SPW_STATUS_OK)
        spw__regular_file_close(answer);
    return status;
}

spw_file *spw_file_ref(spw_file *file)
{
    atomic_fetch_add_explicit(&file->references, 1, memory_order_relaxed);
    return file;
}

void spw_file_unref(spw_file *file)
{
    if (file == NULL ||
        atomic_fetch_sub_explicit(&file->references, 1, memory_order_acq_rel) != 1)
        return;
    spw_context *context = file->context;
    if (file->whole != NULL)
        spw_file_unref(file->whole);
    else
        spw__regular_file_close(file->descriptor);
    spw__place_unref(file->place);
    spw__release(context, file, sizeof *file, _Alignof(spw_file));
    spw_context_unref(context);
}

int spw_file_descriptor(const spw_file *file)
{
    return file->descriptor;
}

spw_status spw__file_share(spw_file *file, spw__place *place, spw_file **ret_file,
                           spw_error *error)
{
    spw_file *shared = spw__allocate(file->context, sizeof *shared, _Alignof(spw_file));
    if (shared == NULL)
        return spw__error_set(error, SPW_STATUS_NO_MEMORY, 0, "no memory for a file");
    *shared = (spw_file){.references = 1,
                         .context = spw_context_ref(file->context),
                         .descriptor = file->descriptor,
                         .whole = spw_file_ref(file),
                         .place = place};
    *ret_file = shared;
    return SPW_STATUS_OK;
}

spw__place *spw__file_place(const spw_file *file)
{
    return file->place;
}
