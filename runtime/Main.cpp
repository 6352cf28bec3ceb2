// main() of every compiled program.
#include "runtime/Environment.h"
#include "runtime/Session.h"

int main(int argc, char **argv) {
  zccrt::prepareProcess(zccrt_the_program, argv);
  return zccrt::runProgram(zccrt_the_program, argc, argv);
}
