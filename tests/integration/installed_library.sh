#!/usr/bin/env bash
# What a program of somebody else's gets: install the library, move it elsewhere, and
# build the examples, outside the tree, against that alone: by CMake and by pkg-config.
# And each header, the text in README.md, and a program in C++ if there is a compiler.
#
#   installed_library.sh SOURCE BUILD COMPILER FLAGS GENERATOR MAKE CMAKE CTEST
set -euo pipefail
source=$1 build=$2 compiler=$3 flags=$4 generator=$5 make=$6 cmake=$7 ctest=$8
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT

"$cmake" --install "$build" --prefix "$place/first" >/dev/null
mv "$place/first" "$place/usr"
cp -r "$source/examples/c" "$place/c"
cd "$place"

echo "== the examples, by find_package(spillway)"
"$cmake" -S c -B by_cmake -G "$generator" -DCMAKE_MAKE_PROGRAM="$make" \
    -DCMAKE_C_COMPILER="$compiler" -DCMAKE_C_FLAGS="$flags -Wall -Wextra -Werror" \
    -DCMAKE_PREFIX_PATH="$place/usr" >/dev/null
"$cmake" --build by_cmake >/dev/null
"$ctest" --test-dir by_cmake --output-on-failure --no-tests=error

echo "== one of them, by pkg-config"
PKG_CONFIG_PATH=$(dirname "$(find "$place/usr" -name spillway.pc)")
export PKG_CONFIG_PATH
library=$(pkg-config --variable=libdir spillway)
# shellcheck disable=SC2046,SC2086  # lists of words
"$compiler" -std=c17 -D_GNU_SOURCE $flags c/send_file_ranges.c c/example_peer.c \
    $(pkg-config --cflags --libs spillway) -Wl,-rpath,"$library" -o by_pkg_config
./by_pkg_config

echo "== each header by itself"
for header in "$(pkg-config --variable=includedir spillway)"/spillway/*.h; do
    # shellcheck disable=SC2046
    printf '#include <spillway/%s>\n' "$(basename "$header")" |
        "$compiler" -std=c11 -Wall -Wextra -Wstrict-prototypes -Werror -fsyntax-only \
            $(pkg-config --cflags spillway) -x c -
done

echo "== the text in README.md"
# shellcheck disable=SC2046
sed -n '/^```c$/,/^```$/{/^```/d;p}' "$source/README.md" |
    "$compiler" -std=c17 -Wall -Wextra -Werror -fsyntax-only \
        $(pkg-config --cflags spillway) -x c -

echo "== a program in C++"
if ! cxx=$(command -v "${CXX:-c++}"); then
    echo "skipped: there is no ${CXX:-c++}"
else
    cat >program.cpp <<'END'
#include <cstring>
#include <spillway/spillway.h>

int main()
{
    spw_context_options options = SPW_CONTEXT_OPTIONS_INIT;
    spw_context *context = nullptr;
    spw_error error;
    if (spw_budget_create(0, &options.budget, &error) != SPW_STATUS_OK ||
        spw_context_create(&options, &context, &error) != SPW_STATUS_OK)
        return 1;
    spw_context_unref(context);
    spw_budget_free(options.budget);
    return std::strcmp(spw_version(), SPW_VERSION);
}
END
    # shellcheck disable=SC2046,SC2086
    "$cxx" -std=c++20 $flags -Wall -Werror program.cpp \
        $(pkg-config --cflags --libs spillway) -Wl,-rpath,"$library" -o by_cxx
    ./by_cxx
fi

echo "== versions"
version=$(sed -n 's/#define SPW_VERSION "\(.*\)"/\1/p' \
    "$(pkg-config --variable=includedir spillway)/spillway/spillway.h")
test "$(pkg-config --modversion spillway)" = "$version"
test -e "$library/libspillway.so.$version"
test "$(find "$place/usr" -name '*.a' | wc -l)" = 0
