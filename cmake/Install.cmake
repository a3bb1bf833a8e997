# What `ninja install` gives: the commands, the runtime (C, pkg-config, Python), and the
# compiler as one shared library with its headers, for other MLIR compilers. In CMake:
#   find_package(Partita COMPONENTS Runtime)    Partita::Runtime
#   find_package(Partita COMPONENTS Compiler)   Partita::Compiler, and MLIR
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

# Everything that passes/Pipelines needs, whole: a program may call any function that has
# a header. Static libraries would ask their users for ONNX, lld and oneDNN.
get_property(libraries GLOBAL PROPERTY PARTITA_LIBRARIES)
file(GLOB sources CONFIGURE_DEPENDS tools/compiler-library/*.cpp)
add_library(partita_compiler SHARED ${sources})
target_include_directories(partita_compiler SYSTEM PRIVATE ${MLIR_INCLUDE_DIRS})
target_include_directories(partita_compiler PRIVATE include ${PROJECT_SOURCE_DIR}
                           ${PROJECT_SOURCE_DIR}/tools ${PROJECT_BINARY_DIR})
list(JOIN libraries "," joined)
target_link_libraries(partita_compiler PRIVATE
  "$<LINK_LIBRARY:WHOLE_ARCHIVE,${joined}>")

set(package ${CMAKE_INSTALL_LIBDIR}/cmake/Partita)
set(tools partita partita-run partita-opt partita-solve)

# partita_install_needs(<component> <target>...): an installation of the component, or of all,
# begins by looking for what it is made of, so that nothing half is left where a build made
# only some targets (utils/demo does).
function(partita_install_needs component)
  set(files)
  foreach(target IN LISTS ARGN)
    list(APPEND files "$<TARGET_FILE:${target}>")
  endforeach()
  install(CODE "
    foreach(file IN ITEMS ${files})
      if(NOT EXISTS \"\${file}\")
        message(FATAL_ERROR \"\${file} is not built, nothing was installed; \"
          \"run: ninja -C ${PROJECT_BINARY_DIR}\")
      endif()
    endforeach()" COMPONENT ${component})
endfunction()
partita_install_needs(Commands ${tools})
set(runtime partita_runtime)
if(TARGET partita_mpi)
  list(APPEND runtime partita_mpi)
endif()
partita_install_needs(Runtime ${runtime})
partita_install_needs(Compiler PartitaPlugin partita_compiler)
set_target_properties(${tools} PROPERTIES
  INSTALL_RPATH "$ORIGIN/../${CMAKE_INSTALL_LIBDIR}"
  # libMLIR stands outside the loader's path in Debian's packages.
  INSTALL_RPATH_USE_LINK_PATH ON)
install(TARGETS ${tools} RUNTIME COMPONENT Commands)
if(TARGET partita_mpi)
  install(TARGETS partita_mpi LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT Runtime)
endif()
install(TARGETS PartitaPlugin LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT Compiler)

add_library(Partita::Runtime ALIAS partita_runtime)
set_target_properties(partita_runtime PROPERTIES EXPORT_NAME Runtime)
set_target_properties(partita_compiler PROPERTIES EXPORT_NAME Compiler)
target_include_directories(partita_runtime INTERFACE
  $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
target_include_directories(partita_compiler INTERFACE
  $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
target_compile_features(partita_compiler INTERFACE cxx_std_20)
install(TARGETS partita_runtime EXPORT PartitaTargets LIBRARY COMPONENT Runtime)
install(TARGETS partita_compiler EXPORT PartitaTargets LIBRARY COMPONENT Compiler)
install(EXPORT PartitaTargets NAMESPACE Partita:: DESTINATION ${package})

install(DIRECTORY include/partita DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(DIRECTORY ${PROJECT_BINARY_DIR}/include/partita
        DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
foreach(folder dialects passes)
  install(DIRECTORY ${folder} ${PROJECT_BINARY_DIR}/${folder}
          DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
          FILES_MATCHING PATTERN "*.h" PATTERN "*.h.inc" PATTERN "*.td"
          PATTERN CMakeFiles EXCLUDE)
endforeach()

configure_package_config_file(cmake/PartitaConfig.cmake.in
  ${PROJECT_BINARY_DIR}/PartitaConfig.cmake INSTALL_DESTINATION ${package})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/PartitaConfigVersion.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/PartitaConfig.cmake
              ${PROJECT_BINARY_DIR}/PartitaConfigVersion.cmake DESTINATION ${package})
configure_file(cmake/partita-runtime.pc.in ${PROJECT_BINARY_DIR}/partita-runtime.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/partita-runtime.pc
        DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT Runtime)
install(FILES LICENSE NOTICE SECURITY.md DESTINATION ${CMAKE_INSTALL_DOCDIR})
