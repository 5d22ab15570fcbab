/** What an author writes, and what they read when the script runs in the frozen scope. */
export const FORBIDDEN: [string, string][] = [
  ["Array.prototype.last = () => 1;", "Cannot add property last, object is not extensible"],
  [
    'String.prototype.trim = () => "";',
    "Cannot assign to read only property 'trim' of object '[object String]'",
  ],
  ["Object.prototype.extra = 1;", "Cannot add property extra, object is not extensible"],
  ["globalThis.cache = new Map();", "Cannot add property cache, object is not extensible"],
  ["globalThis.Date = class {};", "Cannot assign to read only property 'Date' of object '[object global]'"],
  ["Date = class {};", "Cannot assign to read only property 'Date' of object '[object Object]'"],
  ["Date.now = () => 0;", "Cannot assign to read only property 'now' of a built-in function"],
  ["Math.random = () => 0;", "Cannot assign to read only property 'random' of object '[object Math]'"],
  ["console.log = () => {};", "Cannot assign to read only property 'log' of object '[object Object]'"],
  ["JSON.parse = () => 1;", "Cannot assign to read only property 'parse' of object '[object JSON]'"],
  [
    "Error.stackTraceLimit = 50;",
    "Cannot assign to read only property 'stackTraceLimit' of a built-in function",
  ],
  ["Error.prepareStackTrace = () => 1;", "Cannot add property prepareStackTrace, object is not extensible"],
  ['Error.prototype.name = "X";', "Cannot assign to read only property 'name' of a built-in object"],
  ["delete Array.prototype.at;", "Cannot delete property 'at' of [object Array]"],
  ["delete globalThis.escape;", "Cannot delete property 'escape' of [object global]"],
  [
    'Object.defineProperty(Number.prototype, "double", { value: 2 });',
    "Cannot define property double, object is not extensible",
  ],
  ['Object.defineProperty(Array.prototype, "map", { value: 2 });', "Cannot redefine property: map"],
  ["Object.setPrototypeOf(Array.prototype, null);", "[object Array] is not extensible"],
  ["Object.setPrototypeOf(globalThis, {});", "[object global] is not extensible"],
  ["Object.assign(Promise, { extra: 1 });", "Cannot add property extra, object is not extensible"],
  ["Array.prototype.push(1);", "Cannot add property 0, object is not extensible"],
  ["URL.prototype.extra = 1;", "Cannot add property extra, object is not extensible"],
  [
    "crypto.randomUUID = () => 1;",
    "Cannot assign to read only property 'randomUUID' of object '[object Object]'",
  ],
  // An own property that hides an inherited method, on built-ins other than Object, Function and errors.
  [
    "const list = [1]; list.map = () => [];",
    "Cannot assign to read only property 'map' of object '[object Array]'",
  ],
  [
    "const later = Promise.resolve(1); later.then = () => {};",
    "Cannot assign to read only property 'then' of object '[object Promise]'",
  ],
  [
    'const day = new Date(); day.toJSON = () => "";',
    "Cannot assign to read only property 'toJSON' of object '[object Date]'",
  ],
  [
    "const map = new Map(); map.get = 1;",
    "Cannot assign to read only property 'get' of object '[object Map]'",
  ],
  [
    "function Old() {} Old.prototype = Object.create(Array.prototype); Old.prototype.constructor = Old;",
    "Cannot assign to read only property 'constructor' of object '[object Object]'",
  ],
];
