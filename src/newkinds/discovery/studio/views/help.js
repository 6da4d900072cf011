// All keys, and what the mouse and fingers do.

import { dialog } from "./dialogs.js";
import { h } from "./dom.js";

const KEYS = [
  ["Anywhere", [["/", "search: a part of a name, #31 for a category, unlike"], ["G", "go to a category"], ["Ctrl Z, Ctrl ⇧ Z", "undo, redo"], ["U", "undo what the last message names"],
    ["1 … 8", "wall, next, new, not placed yet, map, junk, log, jobs"], ["Esc", "close, or back to the wall"], ["?", "this help"]]],
  ["A grid of images", [["arrows, Home, End", "go to an image"], ["Space", "select it, or not"], ["⇧ arrows, ⇧ click", "select a range"], ["Ctrl A", "select all"], ["Enter", "enlarge"], ["M", "move to another category, or a new one"], ["A", "accept: it belongs here"], ["X, Delete", "junk"], ["B", "move it to the category that is named below it"], ["L", "more like it"]]],
  ["Next", [["Y, Enter", "yes"], ["2", "the other one that is named"], ["M", "another: type its name, or a new one"], ["R", "give the category a name"], ["N", "no, two kinds"], ["X", "junk"], ["S, →", "skip"], ["U, ←", "back, and undo"]]],
  ["A category, or its card on the wall", [["R", "rename"], ["⇧ A", "accept all its images"], ["S", "split, with a preview"], ["⇧ M", "merge with another"], ["⇧ X", "make it junk"], ["N, P", "next, previous category"]]],
  ["An enlarged image", [["← →", "previous, next"], ["F", "primitive fields, if the model has them"], ["M A X B L", "as above"]]],
  ["The map", [["arrows, + −", "move, zoom"], ["N, P, Enter", "next, previous category; open it"], ["S, ⇧ drag", "draw around images to select them"], ["Space", "select the category that is lit"], ["E", "select all that is in the frame"], ["V", "look at what is selected"], ["M A X", "move, accept, junk it"]]],
];

export function help() {
  return dialog("Keys", (close) => [h("h2", {}, "Keys"), h("div", { class: "keys" }, KEYS.map(([title, keys]) =>
    h("div", {}, h("h3", {}, title), h("dl", {}, keys.map(([key, does]) => h("div", {}, h("dt", {}, h("kbd", {}, key)), h("dd", {}, does))))))),
    h("p", { class: "hint" }, "By mouse: drag images onto a category, drag a card onto another to merge, drop a file to find what is like it. ",
      "By touch: press long to select."), h("div", { class: "buttons" }, h("button", { class: "main", autofocus: true, onclick: () => close() }, "Close"))], "wide");
}
