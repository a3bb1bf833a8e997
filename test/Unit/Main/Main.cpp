//===- Main.cpp - Entry point of every unit test --------------------------===//
#define CATCH_CONFIG_MAIN
#include <catch2/catch.hpp>
