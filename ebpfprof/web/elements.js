"use strict";
/* Elements of a page, and which keys are for it. */

/* An element with properties and children; text is never markup. */
function newElement(tag, properties = {}, ...children) {
  const element = Object.assign(document.createElement(tag), properties);
  element.append(...children);
  return element;
}

/* Whether a key is text for a field, or for the browser: all others are for the page. */
function isTyping(event) {
  const field = "textarea, select, input:not([type=checkbox], [type=radio])";
  return event.ctrlKey || event.metaKey || event.altKey || Boolean(event.target.closest?.(field));
}

/* Copies a text. Where the browser does not allow the page to do that by itself (http:// of
   another machine), by way of a selection. */
async function copyText(text) {
  if (navigator.clipboard) return navigator.clipboard.writeText(text);
  const field = newElement("textarea", { value: text, readOnly: true, className: "hidden" });
  const focused = document.activeElement;
  document.body.append(field);
  field.select();
  const isDone = document.execCommand("copy");
  field.remove();
  focused?.focus();
  if (!isDone) throw new Error("The browser does not allow this page to copy.");
}
