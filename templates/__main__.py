"""Compile all templates, regardless of `sys.dont_write_bytecode`."""

from tensorlang.templates.bytecode import PycacheBytecode
from tensorlang.templates.environment import environment

templates = environment().overlay(bytecode_cache=PycacheBytecode(write=True))
for name in templates.list_templates(extensions=["j2"]):
    templates.get_template(name)
