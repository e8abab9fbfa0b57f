import { existsSync } from 'node:fs';
import promises from 'node:fs/promises';
import { join } from 'node:path';
import { ResourceFiles } from '../../src/host/generation-files';

describe('closing generations', () => {
  let root: string;
  beforeEach(async () => void (root = await promises.mkdtemp('/var/tmp/generation-files-')));
  afterEach(async () => {
    jest.restoreAllMocks();
    await promises.rm(root, { recursive: true });
  });

  it.each(['before', 'after'])(
    'leaves no start with its leave, when one opens right %s the floor is raised (G5)',
    async (moment) => {
      const files = new ResourceFiles(root, '/run', 'own', 'a');
      await files.close(1);
      let goesOn = false;
      const start = async (): Promise<void> => {
        const generation = (await files.make(5))!;
        await generation.open();
        goesOn = (await files.floor()) < 5;
      };
      const { writeFile } = promises;
      jest.spyOn(promises, 'writeFile').mockImplementation(async (path, ...how) => {
        const raises = typeof path === 'string' && path.endsWith('/floor/9');
        if (raises && moment === 'before') await start();
        await writeFile(path, ...how);
        if (raises && moment === 'after') await start();
      });
      await files.close(9);
      const open = existsSync(join(root, files.generation(5).openFile));
      expect(goesOn && open).toBe(false);
    },
  );
});
