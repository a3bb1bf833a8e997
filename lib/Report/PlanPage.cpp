//===- PlanPage.cpp - A plan as one HTML page -----------------------------===//
#include "partita/Report/PlanPage.h"

#include "partita/Base/Units.h"

#include <algorithm>
#include <cstdio>
#include <map>

using namespace partita;
using namespace partita::report;

static std::string escaped(const std::string &text) {
  std::string result;
  for (char c : text)
    switch (c) {
    case '<':
      result += "&lt;";
      break;
    case '>':
      result += "&gt;";
      break;
    case '&':
      result += "&amp;";
      break;
    case '"':
      result += "&quot;";
      break;
    default:
      result += c;
    }
  return result;
}

static constexpr const char *colours[] = {"#3b6fb6", "#d9822b", "#4f9d69", "#b5485d",
                                          "#7a5ea8", "#8a7a4a", "#3f9fa8", "#777777"};
static const char *colour(size_t i) { return colours[i % std::size(colours)]; }

static constexpr const char *style =
    "body{font:15px/1.45 system-ui,sans-serif;max-width:64em;margin:2em auto;padding:0 "
    "1em;"
    "color:#222}h1{font-size:1.5em}h2{font-size:1.15em;margin-top:2em}"
    "table{border-collapse:collapse}td,th{text-align:left;padding:.15em .8em .15em 0;"
    "vertical-align:top}td.n{text-align:right;font-variant-numeric:tabular-nums}"
    "code{font-size:.92em}.chip{display:inline-block;padding:0 .5em;margin-right:.3em;"
    "border-radius:.6em;color:#fff;font-size:.85em}.no{color:#a33}svg{max-width:100%}";

namespace {
class Writer {
public:
  explicit Writer(const PlanPage &page) : page(page) {
    for (size_t a = 0; a < page.axes.size(); ++a)
      axisColour[page.axes[a].first] = colour(a);
  }

  std::string run() {
    out =
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n<title>Plan "
        "of " +
        escaped(page.model) + "</title>\n<style>" + style +
        "</style></head><body>\n<h1>Plan of " + escaped(page.model) + "</h1>\n";
    summary();
    mesh();
    breakdown();
    levels();
    memory();
    plans();
    strategies();
    conversions();
    meshes();
    return out + "</body></html>\n";
  }

private:
  void section(const char *id, const char *title) {
    out += std::string("<h2 id=\"") + id + "\">" + title + "</h2>\n";
  }

  void summary() {
    out += "<p>" + durationText(page.seconds) + " per run; " + escaped(page.boundText) +
           ".</p>\n";
    list(page.choices);
  }

  std::string chip(const std::string &axis) const {
    auto known = axisColour.find(axis.substr(0, axis.find(':')));
    return std::string("<span class=\"chip\" style=\"background:") +
           (known == axisColour.end() ? "#777777" : known->second) + "\">" +
           escaped(axis) + "</span>";
  }

  /// Up to 16 × 16 devices as squares, the rest as dots of a sentence; boxes are units of
  /// the innermost level.
  void mesh() {
    section("mesh", "Mesh and topology");
    out += "<p>";
    int64_t devices = 1;
    for (const auto &[name, size] : page.axes) {
      out += chip(name) + " " + std::to_string(size) + " &nbsp; ";
      devices *= size;
    }
    out += "on " + std::to_string(devices) + " × " + escaped(page.device) + "</p>\n";
    int64_t inner = page.levels.empty() ? 1 : page.levels[0].size;
    int64_t columns = std::clamp<int64_t>(inner, 1, 16);
    int64_t shown = std::min<int64_t>(devices, columns * 16);
    int64_t last = page.axes.empty() ? 1 : page.axes.back().second;
    int64_t rows = (shown + columns - 1) / columns;
    out += formatted("<svg width=\"%lld\" height=\"%lld\" role=\"img\">",
                     static_cast<long long>(columns * 26 + 8),
                     static_cast<long long>(rows * 26 + 8));
    for (int64_t d = 0; d < shown; ++d)
      out += formatted(
          "<rect x=\"%lld\" y=\"%lld\" width=\"22\" height=\"22\" rx=\"3\" "
          "fill=\"%s\" fill-opacity=\"%.2f\"><title>device %lld</title></rect>",
          static_cast<long long>(d % columns * 26 + 4),
          static_cast<long long>(d / columns * 26 + 4),
          colour(static_cast<size_t>(d / last)),
          0.35 + 0.6 * static_cast<double>(d % last + 1) / static_cast<double>(last),
          static_cast<long long>(d));
    out += "</svg>\n<p>A row is one unit of the innermost level";
    if (shown < devices)
      out += "; the first " + std::to_string(shown) + " devices are drawn";
    out += ". Devices of one colour differ along the last axis only.</p>\n";
  }

  void breakdown() {
    section("time", "Time");
    double x = 0;
    out += "<svg width=\"760\" height=\"34\" role=\"img\">";
    for (size_t i = 0; i < page.parts.size(); ++i) {
      double width = page.seconds == 0 ? 0 : 760 * page.parts[i].seconds / page.seconds;
      out +=
          formatted("<rect x=\"%.2f\" y=\"2\" width=\"%.2f\" height=\"30\" fill=\"%s\">",
                    x, width, colour(i)) +
          "<title>" + escaped(page.parts[i].name) + "</title></rect>";
      x += width;
    }
    out += "</svg>\n<table>";
    for (size_t i = 0; i < page.parts.size(); ++i)
      out +=
          formatted("<tr><td><span class=\"chip\" style=\"background:%s\">&nbsp;</span>",
                    colour(i)) +
          escaped(page.parts[i].name) + "</td><td class=\"n\">" +
          durationText(page.parts[i].seconds) + "</td><td class=\"n\">" +
          formatted("%.2f%%",
                    page.seconds == 0 ? 0 : 100 * page.parts[i].seconds / page.seconds) +
          "</td></tr>";
    out += "</table>\n";
  }

  void levels() {
    section("levels", "Communication by level");
    out += "<table><tr><th>level</th><th>units</th><th>bandwidth</th><th>links busy</th>"
           "</tr>";
    for (const Level &level : page.levels)
      out += "<tr><td>" + escaped(level.name) + "</td><td class=\"n\">" +
             std::to_string(level.size) + "</td><td class=\"n\">" +
             bytesText(level.bandwidth) + "/s</td><td class=\"n\">" +
             durationText(level.busySeconds) + "</td></tr>";
    out += "</table>\n";
  }

  /// The most of each of up to 380 stretches.
  void memory() {
    section("memory", "Memory of a device over the program");
    if (page.memory.empty())
      return;
    size_t points = std::min<size_t>(380, page.memory.size());
    std::vector<int64_t> most(points, 0);
    for (size_t i = 0; i < page.memory.size(); ++i) {
      int64_t &slot = most[i * points / page.memory.size()];
      slot = std::max(slot, page.memory[i]);
    }
    int64_t peak = *std::max_element(most.begin(), most.end());
    double top =
        static_cast<double>(std::max<int64_t>({1, peak, page.memoryLimit.value_or(0)}));
    out += "<svg width=\"760\" height=\"190\" role=\"img\"><polyline fill=\"#3b6fb633\" "
           "stroke=\"#3b6fb6\" points=\"0,180 ";
    for (size_t i = 0; i < points; ++i)
      out += formatted("%.1f,%.1f ",
                       760.0 * static_cast<double>(i) /
                           static_cast<double>(std::max<size_t>(1, points - 1)),
                       180 - 170 * static_cast<double>(most[i]) / top);
    out += "760,180\"/>";
    if (page.memoryLimit) {
      double y = 180 - 170 * static_cast<double>(*page.memoryLimit) / top;
      out += formatted(
          "<line x1=\"0\" x2=\"760\" y1=\"%.1f\" y2=\"%.1f\" stroke=\"#b5485d\" "
          "stroke-dasharray=\"6 4\"/>",
          y, y);
    }
    out += "</svg>\n<p>At most " + bytesText(static_cast<double>(peak));
    if (page.memoryLimit)
      out += " of " + bytesText(static_cast<double>(*page.memoryLimit)) + " (dashed)";
    out += ".</p>\n";
    list(page.memoryNotes);
  }

  void list(const std::vector<std::string> &lines) {
    if (lines.empty())
      return;
    out += "<ul>";
    for (const std::string &line : lines)
      out += "<li><code>" + escaped(line) + "</code></li>";
    out += "</ul>\n";
  }

  void plans() {
    section("plans", "Other plans, priced alike");
    double longest = 1e-30;
    for (const OtherPlan &plan : page.plans)
      longest = std::max(longest, plan.seconds);
    out += "<table>";
    for (size_t i = 0; i < page.plans.size(); ++i) {
      const OtherPlan &plan = page.plans[i];
      out +=
          "<tr><td>" + escaped(plan.name) + "</td><td>" +
          formatted("<svg width=\"300\" height=\"16\"><rect width=\"%.1f\" height=\"16\" "
                    "fill=\"%s\"/></svg>",
                    300 * plan.seconds / longest, plan.fits ? colour(i) : "#cccccc") +
          "</td><td class=\"n\">" + durationText(plan.seconds) + "</td><td class=\"n\">" +
          bytesText(static_cast<double>(plan.memory)) + "</td><td class=\"no\">" +
          (plan.fits ? "" : "does not fit") + "</td></tr>";
    }
    out += "</table>\n";
  }

  void strategies() {
    section("strategies", "Strategies by layer");
    out += "<table><tr><th>node</th><th>times</th><th>op</th><th>axes</th><th>strategy"
           "</th></tr>";
    for (const StrategyRow &row : page.strategies) {
      out += "<tr><td><code>" + escaped(row.node) + "</code></td><td class=\"n\">" +
             std::to_string(row.copies) + "</td><td>" + escaped(row.op) + "</td><td>";
      for (const std::string &axis : row.axes)
        out += chip(axis);
      out += "</td><td><code>" + escaped(row.strategy) + "</code></td></tr>\n";
    }
    out += "</table>\n";
  }

  void conversions() {
    section("conversions", "Conversions that take longest");
    if (page.conversions.empty())
      out += "<p>None.</p>\n";
    list(page.conversions);
  }

  void meshes() {
    if (page.meshes.size() < 2)
      return;
    section("meshes", "Meshes");
    out += "<table>";
    for (const auto &[mesh, result] : page.meshes)
      out += "<tr><td><code>" + escaped(mesh) + "</code></td><td>" + escaped(result) +
             "</td></tr>";
    out += "</table>\n";
  }

  const PlanPage &page;
  std::map<std::string, std::string> axisColour;
  std::string out;
};
} // namespace

std::string report::htmlOf(const PlanPage &page) { return Writer(page).run(); }
