// Reads [{parser, text, broken}, ...] from standard input, broken being a copy of text
// that is wrong, and writes what is wrong with each, "" for nothing:
// [{text: "", broken: "line 3:4 ..."}, ...].
//
// plsql: DDL and PL/SQL, by the grammar of antlr4ts-sql (2020). dml: SELECT, INSERT,
// UPDATE, DELETE and MERGE, by sqlparser's Oracle dialect. They know the grammar, and
// nothing of names, types and what a statement does.

import { readFileSync } from "node:fs";
import antlr from "antlr4ts-sql";
import mode from "antlr4ts/atn/PredictionMode.js";
import { init, validate } from "@guanmingchiu/sqlparser-ts";

const oracle = new antlr.antlr4tsSQL(antlr.SQLDialect.PLSQL);

// The first error ends it: there is no need to recover from it.
const listener = {
  syntaxError(recognizer, symbol, line, column, message) {
    throw new Error(`line ${line}:${column} ${message.slice(0, 120)}`);
  },
};

function parse(text, prediction) {
  try {
    const parser = oracle.getParser(oracle.getTokens(text, [listener]), [listener]);
    parser.interpreter.setPredictionMode(prediction);
    parser.sql_script();
    return "";
  } catch (error) {
    return String(error.message ?? error);
  }
}

// The fast prediction takes nothing that is wrong; what it refuses may be right.
function plsql({ text, broken }) {
  // The grammar knows keywords in upper case only.
  const [upper, upperBroken] = [text.toUpperCase(), broken.toUpperCase()];
  const fast = parse(upper, mode.PredictionMode.SLL);
  return {
    text: fast && parse(upper, mode.PredictionMode.LL),
    broken: parse(upperBroken, fast ? mode.PredictionMode.LL : mode.PredictionMode.SLL),
  };
}

function dml({ text, broken }) {
  const refusal = (sql) => {
    try {
      validate(sql, "oracle");
      return "";
    } catch (error) {
      return String(error.message ?? error).slice(0, 120);
    }
  };
  return { text: refusal(text), broken: refusal(broken) };
}

await init();
const parsers = { plsql, dml };
const texts = JSON.parse(readFileSync(0, "utf8"));
process.stdout.write(JSON.stringify(texts.map((t) => parsers[t.parser](t))));
