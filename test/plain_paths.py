"""What this suite does around lit's shell tests. RUN lines do not quote %s and %t: where source or build lie under a path that
a shell would split, the tests see both through links whose names are plain. And what tests export is opened by others."""
import atexit
import os
import re
import shutil
import subprocess
import tempfile

import lit.formats
import lit.Test
import lit.TestRunner


class PlainPaths(lit.formats.ShTest):
    """`source` and `build` are the roots of the two trees, as the tests see them. `reader`: a command that opens the safetensors
    files it is given, or fails; None where it cannot."""

    def __init__(self, source, build):
        super().__init__(execute_external=False)
        self.source, self.build, self.reader = source, build, None
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
        # Launchers that run at the same time would make and remove one folder of sessions under each other. And what ranks share
        # would stay where they are killed.
        with tempfile.TemporaryDirectory(prefix="zcc-mpi-", ignore_cleanup_errors=True) as sessions:
            for name in ("OMPI_MCA_orte_tmpdir_base", "PRTE_MCA_prte_tmpdir_base",
                         "OMPI_MCA_btl_vader_backing_directory", "OMPI_MCA_btl_sm_backing_directory"):
                test.config.environment[name] = sessions
            result = super().execute(test, lit_config)
        files = exports_of(test) if self.reader and result.code == lit.Test.PASS else []
        if files:
            read = subprocess.run([*self.reader, *files], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            if read.returncode:
                return lit.Test.Result(lit.Test.FAIL, "what the test left is not read by safetensors:\n" + read.stdout)
        return result


def exports_of(test):
    """The safetensors files that a test left at %t or in it."""
    _, base = lit.TestRunner.getTempPaths(test)
    folder, name = os.path.split(base + ".tmp")
    top = [os.path.join(folder, f) for f in os.listdir(folder) if f.startswith(name)] if os.path.isdir(folder) else []
    inside = [os.path.join(d, f) for t in top for d, _, files in os.walk(t) for f in files]
    return sorted(f for f in top + inside if f.endswith(".safetensors") and os.path.isfile(f))


def remove(links, owner):
    if os.getpid() == owner:  # not in lit's workers
        shutil.rmtree(links)
