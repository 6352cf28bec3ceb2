"""RUN lines do not quote %s and %t. Where source or build lie under a path that a shell would split,
the tests see both through links whose names are plain."""
import atexit
import os
import re
import shutil
import tempfile

import lit.formats


class PlainPaths(lit.formats.ShTest):
    """`source` and `build` are the roots of the two trees, as the tests see them."""

    def __init__(self, source, build):
        super().__init__(execute_external=False)
        self.source, self.build = source, build
        if re.search(r"[^\w@%+=:,./-]", source + build):
            links = tempfile.mkdtemp(prefix="zcc-tests-")
            atexit.register(remove, links, os.getpid())
            self.source = self.link(source, links, "source")
            self.build = self.link(build, links, "build")

    @staticmethod
    def link(folder, links, name):
        os.symlink(folder, os.path.join(links, name))
        return os.path.join(links, name)

    def execute(self, test, lit_config):
        # lit itself resolves links.
        test.suite.source_root = os.path.join(self.source, "test")
        test.suite.exec_root = os.path.join(self.build, "test")
        return super().execute(test, lit_config)


def remove(links, owner):
    if os.getpid() == owner:  # not in lit's workers
        shutil.rmtree(links)
