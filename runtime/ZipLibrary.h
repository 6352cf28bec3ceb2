// libzip's functions that are used, loaded when the first archive is opened.
#pragma once

#include <zip.h>

namespace zccrt {

#define ZCC_LIBZIP(F)                                                                                                            \
  F(zip_close)                                                                                                                   \
  F(zip_discard)                                                                                                                 \
  F(zip_error_code_system)                                                                                                       \
  F(zip_error_code_zip)                                                                                                          \
  F(zip_error_fini)                                                                                                              \
  F(zip_error_init)                                                                                                              \
  F(zip_error_set)                                                                                                               \
  F(zip_error_strerror)                                                                                                          \
  F(zip_error_to_data)                                                                                                           \
  F(zip_fclose)                                                                                                                  \
  F(zip_file_add)                                                                                                                \
  F(zip_file_set_dostime)                                                                                                        \
  F(zip_file_strerror)                                                                                                           \
  F(zip_fopen_index)                                                                                                             \
  F(zip_fread)                                                                                                                   \
  F(zip_get_error)                                                                                                               \
  F(zip_get_name)                                                                                                                \
  F(zip_get_num_entries)                                                                                                         \
  F(zip_open_from_source)                                                                                                        \
  F(zip_set_file_compression)                                                                                                    \
  F(zip_source_free)                                                                                                             \
  F(zip_source_function_create)                                                                                                  \
  F(zip_source_seek_compute_offset)                                                                                              \
  F(zip_stat_index)                                                                                                              \
  F(zip_stat_init)                                                                                                               \
  F(zip_strerror)

struct ZipLibrary {
#define ZCC_MEMBER(NAME) decltype(::NAME) *NAME = nullptr;
  ZCC_LIBZIP(ZCC_MEMBER)
#undef ZCC_MEMBER
  ZipLibrary();
};

/// Throws a Failure where it is not found.
const ZipLibrary &libzip();

} // namespace zccrt
