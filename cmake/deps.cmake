# SPDX-License-Identifier: Apache-2.0
# keel_deps: everything the library links. scripts/deps.sh names the Debian packages.
find_package(PkgConfig REQUIRED)
find_package(Threads REQUIRED)
add_library(keel_deps INTERFACE)

# pkg-config module, and the archive that holds it for KEEL_STATIC_DEPS
foreach(pair jansson:libjansson.a expat:libexpat.a zlib:libz.a libpcre2-8:libpcre2-8.a libutf8proc:libutf8proc.a
             libcrypto:libcrypto.a)
    string(REGEX MATCH "^([^:]+):(.+)$" _ ${pair})
    set(module ${CMAKE_MATCH_1})
    set(archive ${CMAKE_MATCH_2})
    pkg_check_modules(dep_${module} REQUIRED IMPORTED_TARGET ${module})
    if(KEEL_STATIC_DEPS)
        find_library(archive_${module} ${archive} REQUIRED)
        target_include_directories(keel_deps SYSTEM INTERFACE ${dep_${module}_INCLUDE_DIRS})
        target_link_libraries(keel_deps INTERFACE ${archive_${module}})
    else()
        target_link_libraries(keel_deps INTERFACE PkgConfig::dep_${module})
    endif()
endforeach()
target_link_libraries(keel_deps INTERFACE Threads::Threads ${CMAKE_DL_LIBS} m)
