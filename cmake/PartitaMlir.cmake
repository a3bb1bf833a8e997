# MLIR targets: dialects and passes. Everything links the shared libMLIR, so that the
# plugin and stock mlir-opt share one copy of every type id.

find_package(MLIR 22.1 REQUIRED CONFIG HINTS /usr/lib/llvm-22/lib/cmake/mlir)
list(APPEND CMAKE_MODULE_PATH ${MLIR_CMAKE_DIR} ${LLVM_CMAKE_DIR})
include(TableGen)

# partita_tablegen(<td> <out> <flags>...): one generated file in the current binary
# folder, collected in PARTITA_GENERATED of the current folder.
macro(partita_tablegen td out)
  add_custom_command(
    OUTPUT ${CMAKE_CURRENT_BINARY_DIR}/${out}
    COMMAND ${LLVM_TOOLS_BINARY_DIR}/mlir-tblgen ${ARGN} ${CMAKE_CURRENT_SOURCE_DIR}/${td}
            -I ${PROJECT_SOURCE_DIR} -I ${CMAKE_CURRENT_SOURCE_DIR} -I ${MLIR_INCLUDE_DIRS}
            -d ${out}.d -o ${out}
    DEPENDS ${td}
    DEPFILE ${CMAKE_CURRENT_BINARY_DIR}/${out}.d
    WORKING_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR})
  list(APPEND PARTITA_GENERATED ${CMAKE_CURRENT_BINARY_DIR}/${out})
endmacro()

# partita_mlir_library(<Name> [LINK <libs>...]): static library Partita<Name> from the
# folder's sources (and those of its sub-folders) and generated files.
function(partita_mlir_library name)
  cmake_parse_arguments(ARG "" "" "LINK" ${ARGN})
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*.cpp)
  add_library(Partita${name} STATIC ${sources} ${PARTITA_GENERATED})
  set_property(GLOBAL APPEND PROPERTY PARTITA_LIBRARIES Partita${name})
  target_include_directories(Partita${name} PUBLIC ${PROJECT_SOURCE_DIR} ${PROJECT_BINARY_DIR})
  target_include_directories(Partita${name} SYSTEM PUBLIC ${MLIR_INCLUDE_DIRS})
  target_compile_options(Partita${name} PRIVATE -fno-exceptions -fno-rtti)
  target_link_libraries(Partita${name} PUBLIC ${ARG_LINK} MLIR LLVM)
endfunction()
