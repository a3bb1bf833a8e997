# The build vocabulary of the project: one function per kind of target, so that a
# folder's CMakeLists.txt only says its name and what it may link.

# partita_library(<Name> [LINK <libs>...] [ROOMS <folders>...] [EXCEPTIONS])
# A static library Partita<Name> from every .cpp of the current folder and of the named
# folders in it.
# Exceptions are off unless the folder is one of the three that may use them.
function(partita_library name)
  cmake_parse_arguments(ARG "EXCEPTIONS" "" "LINK;ROOMS" ${ARGN})
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*.cpp)
  foreach(room IN LISTS ARG_ROOMS)
    file(GLOB inRoom CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/${room}/*.cpp)
    list(APPEND sources ${inRoom})
  endforeach()
  add_library(Partita${name} STATIC ${sources})
  set_property(GLOBAL APPEND PROPERTY PARTITA_LIBRARIES Partita${name})
  target_include_directories(Partita${name} PUBLIC ${PROJECT_SOURCE_DIR}/include)
  target_link_libraries(Partita${name} PUBLIC ${ARG_LINK})
  if(NOT ARG_EXCEPTIONS)
    target_compile_options(Partita${name} PRIVATE -fno-exceptions)
  endif()
endfunction()

# partita_unit_test(<Name> [LINK <libs>...])
# build/<preset>/bin/unit-<name> from test/Unit/<Name>/*.cpp, registered with ctest
# as unit-<name>. Catch2's main comes from test/Unit/Main.
function(partita_unit_test name)
  cmake_parse_arguments(ARG "" "" "LINK" ${ARGN})
  string(TOLOWER ${name} lower)
  file(GLOB sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/test/Unit/${name}/*.cpp)
  add_executable(unit-${lower} ${sources})
  target_link_libraries(unit-${lower} PRIVATE Partita${name} PartitaUnitMain ${ARG_LINK})
  add_test(NAME unit-${lower} COMMAND unit-${lower})
endfunction()

# partita_tool(<name> [LINK <libs>...]): build/<preset>/bin/<name> from the current
# folder's sources.
function(partita_tool name)
  cmake_parse_arguments(ARG "" "" "LINK" ${ARGN})
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*.cpp)
  add_executable(${name} ${sources})
  target_link_libraries(${name} PRIVATE ${ARG_LINK})
endfunction()
