# SPDX-License-Identifier: Apache-2.0
# What the library and the program are made of, and the two registries generated from ops/ops.def and models/*.c.
file(GLOB KEEL_LIB_SOURCES CONFIGURE_DEPENDS
    ${CMAKE_SOURCE_DIR}/src/core/*.c ${CMAKE_SOURCE_DIR}/src/graph/*.c ${CMAKE_SOURCE_DIR}/src/draw/*.c
    ${CMAKE_SOURCE_DIR}/src/plan/*.c
    ${CMAKE_SOURCE_DIR}/src/load/*.c ${CMAKE_SOURCE_DIR}/src/body/*.c
    ${CMAKE_SOURCE_DIR}/src/exec/*.c ${CMAKE_SOURCE_DIR}/src/trace/*.c
    ${CMAKE_SOURCE_DIR}/ops/*/*.c ${CMAKE_SOURCE_DIR}/models/*.c)
list(FILTER KEEL_LIB_SOURCES EXCLUDE REGEX "/ops/[^/]+/[^/]*_test\\.c$")
file(GLOB KEEL_TOOL_SOURCES CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/tools/*.c)
file(GLOB KEEL_MODEL_SOURCES CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/models/*.c)

set(KEEL_GENERATED_DIR ${CMAKE_BINARY_DIR}/generated)
file(MAKE_DIRECTORY ${KEEL_GENERATED_DIR}) # Ninja makes it, Makefiles do not
set(registry_script ${CMAKE_SOURCE_DIR}/scripts/gen_registry.sh)
add_custom_command(
    OUTPUT ${KEEL_GENERATED_DIR}/op_registry.c
    COMMAND ${registry_script} op ${KEEL_GENERATED_DIR}/op_registry.c ${CMAKE_SOURCE_DIR}/ops/ops.def
    DEPENDS ${registry_script} ${CMAKE_SOURCE_DIR}/ops/ops.def
    VERBATIM)
add_custom_command(
    OUTPUT ${KEEL_GENERATED_DIR}/model_registry.c
    COMMAND ${registry_script} model ${KEEL_GENERATED_DIR}/model_registry.c ${KEEL_MODEL_SOURCES}
    DEPENDS ${registry_script}
    VERBATIM)
file(GLOB KEEL_GEOMETRIES CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/models/geometries/*.json)
set(geometry_script ${CMAKE_SOURCE_DIR}/scripts/gen_geometries.sh)
add_custom_command(
    OUTPUT ${KEEL_GENERATED_DIR}/geometries.c
    COMMAND ${geometry_script} ${KEEL_GENERATED_DIR}/geometries.c ${KEEL_GEOMETRIES}
    DEPENDS ${geometry_script} ${KEEL_GEOMETRIES}
    VERBATIM)
file(GLOB KEEL_DEVICE_TEXT RELATIVE ${CMAKE_SOURCE_DIR} CONFIGURE_DEPENDS
    ${CMAKE_SOURCE_DIR}/src/device/*.h ${CMAKE_SOURCE_DIR}/src/device/*.cuh ${CMAKE_SOURCE_DIR}/ops/*/*.h
    ${CMAKE_SOURCE_DIR}/ops/*/*.cuh)
set(device_script ${CMAKE_SOURCE_DIR}/scripts/gen_device.sh)
add_custom_command(
    OUTPUT ${KEEL_GENERATED_DIR}/device_text.c
    COMMAND ${device_script} ${KEEL_GENERATED_DIR}/device_text.c ${CMAKE_SOURCE_DIR} ${KEEL_DEVICE_TEXT}
    DEPENDS ${device_script} ${KEEL_DEVICE_TEXT}
    VERBATIM)
set(KEEL_GENERATED ${KEEL_GENERATED_DIR}/op_registry.c ${KEEL_GENERATED_DIR}/model_registry.c
    ${KEEL_GENERATED_DIR}/geometries.c ${KEEL_GENERATED_DIR}/device_text.c)
# One producer, so that two libraries may use the files without generating them twice at once.
add_custom_target(keel_generated DEPENDS ${KEEL_GENERATED})

# keel_add_library(target): the whole library. Called again for the copy under ThreadSanitizer (tests/CMakeLists.txt).
function(keel_add_library target)
    add_library(${target} STATIC ${KEEL_LIB_SOURCES} ${KEEL_GENERATED})
    add_dependencies(${target} keel_generated)
    target_include_directories(${target} PUBLIC ${CMAKE_SOURCE_DIR}/include PRIVATE ${CMAKE_SOURCE_DIR}/src)
    target_link_libraries(${target} PRIVATE keel_deps)
endfunction()
