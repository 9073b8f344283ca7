/* What a declaration needs to be part of the public interface: to be seen outside the
 * library, by a name that C++ does not change. */
#ifndef SPILLWAY_EXPORT_H
#define SPILLWAY_EXPORT_H

#ifdef __cplusplus
#define SPW_EXTERN extern "C"
#else
#define SPW_EXTERN
#endif

#if defined(__GNUC__)
#define SPW_EXPORT SPW_EXTERN __attribute__((visibility("default")))
#define SPW_NODISCARD __attribute__((warn_unused_result))
#else
#define SPW_EXPORT SPW_EXTERN
#define SPW_NODISCARD
#endif

#endif
