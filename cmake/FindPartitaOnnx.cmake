# The ONNX C++ library that utils/setup builds, as the target PartitaOnnxLibrary.
# PARTITA_ONNX_PREFIX names its prefix; by default the one in the cache.

set(_version 1.22.0)
if(DEFINED ENV{PARTITA_CACHE})
  set(_cache $ENV{PARTITA_CACHE})
else()
  set(_cache $ENV{HOME}/.cache/partita)
endif()
set(PARTITA_ONNX_PREFIX ${_cache}/onnx-${_version} CACHE PATH
    "Install prefix of the ONNX ${_version} C++ library")

# The stamp is written last: without it the prefix is none, or half of one.
if(NOT EXISTS ${PARTITA_ONNX_PREFIX}/stamp)
  message(FATAL_ERROR "No ONNX ${_version} C++ library in ${PARTITA_ONNX_PREFIX}: "
                      "run utils/setup, which builds it there")
endif()

find_package(Protobuf REQUIRED)
if(NOT TARGET PartitaOnnxLibrary)
  add_library(PartitaOnnxLibrary INTERFACE)
  target_include_directories(PartitaOnnxLibrary SYSTEM INTERFACE
                             ${PARTITA_ONNX_PREFIX}/include)
  target_compile_definitions(PartitaOnnxLibrary INTERFACE ONNX_ML=1 ONNX_NAMESPACE=onnx)
  # Operator schemas register themselves from static initialisers, which a linker drops
  # from an archive unless told to take all of it.
  target_link_libraries(PartitaOnnxLibrary INTERFACE
    $<LINK_LIBRARY:WHOLE_ARCHIVE,${PARTITA_ONNX_PREFIX}/lib/libonnx.a>
    ${PARTITA_ONNX_PREFIX}/lib/libonnx_proto.a protobuf::libprotobuf)
endif()
