# Asks the official core. Arguments: a folder with models. Each line of the input is a question as JSON, each line of the
# output its answer: `null`, or why it is refused.
#   {"load": "a.b"}                          the package loads
#   {"format": "text"}                       the text is formatted as the core formats it
#   {"package": "a.b", "schema": "X", "object": {…}}   the object is one of the schema
import json, os, sys
import kcl_lib.api as kcl

root = sys.argv[1]
service = kcl.API()
open(os.path.join(root, "kcl.mod"), "a").close()
main = os.path.join(root, "main.k")


def literal(value):
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(key)} = {literal(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(literal(item) for item in value) + "]"
    words = {None: "None", True: "True", False: "False"}
    if value is None or isinstance(value, bool):
        return words[value]
    return json.dumps(value, ensure_ascii=False)


def run(program):
    with open(main, "w") as file:
        file.write(program)
    try:
        result = service.exec_program(kcl.ExecProgramArgs(work_dir=root, k_filename_list=[main]))
        return result.err_message or None
    except Exception as error:
        return str(error)


def answer(question):
    if "load" in question:
        return run(f"import {question['load']} as models\nx = 1\n")
    if "format" in question:
        formatted = service.format_code(kcl.FormatCodeArgs(source=question["format"])).formatted.decode()
        return None if formatted == question["format"] else formatted
    return run(f"import {question['package']} as models\nx = models.{question['schema']} {literal(question['object'])}\n")


for line in sys.stdin:
    print(json.dumps(answer(json.loads(line))), flush=True)
