/* What a symbol needs to be part of the public interface. */
#ifndef SPILLWAY_EXPORT_H
#define SPILLWAY_EXPORT_H

#if defined(__GNUC__)
#define SPW_EXPORT __attribute__((visibility("default")))
#define SPW_NODISCARD __attribute__((warn_unused_result))
#else
#define SPW_EXPORT
#define SPW_NODISCARD
#endif

#endif
